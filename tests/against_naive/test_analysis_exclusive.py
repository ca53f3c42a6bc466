"""Own time of spans, against painting; and on the shapes that real recordings have."""

from hypothesis import given
from hypothesis import strategies as st

from crossrank.analysis.exclusive import exclusive_ns
from tests.support.events import collective
from tests.support.naive_exclusive import own_time
from tests.support.timelines import timeline_of

span = st.tuples(st.integers(0, 1), st.integers(0, 30), st.one_of(st.none(), st.integers(0, 20)))


@given(st.lists(span, max_size=14))
def test_equals_painting(spans):
    timeline = timeline_of(*({"lane": str(lane), "at": (at, None if n is None else at + n)} for lane, at, n in spans))
    assert exclusive_ns(timeline).tolist() == own_time(timeline)


def test_overlapping_asynchronous_operations_inside_a_phase_are_taken_once():
    timeline = timeline_of(
        {"name": "backward", "at": (0, 100)},
        collective(0, 1, (10, 60)),
        collective(0, 2, (20, 50)),
        collective(0, 3, (40, 90)),
        collective(0, 4, (95, 120)),
    )
    assert exclusive_ns(timeline).tolist() == [20, 20, 30, 50, 25]


def test_very_deep_nesting_stays_cheap_and_never_negative():
    own = exclusive_ns(timeline_of(*({"at": (i, 4000 - i)} for i in range(1500))))
    assert own[0] == 2
    assert (own >= 0).all()
