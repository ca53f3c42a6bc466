from __future__ import annotations

import numpy as np
import pytest

from crossrank.align.fit import fit_clocks
from tests.support.clock_truth import RecordedClock, error_ns, mapped, recorded, recorded_skewed, share_of_bound, without_common

INJECTED = {
    "host1": RecordedClock(23_177_037, -35.2),
    "host2": RecordedClock(56_231_854, -13.1),
    "host3": RecordedClock(-147_659_511, 28.0),
}
STEPPED = INJECTED | {"host3": RecordedClock(147_659_511, -13.0, 35_000_000, 4_123_000_000)}


@pytest.mark.parametrize("injected", [INJECTED, STEPPED], ids=["drift", "step"])
@pytest.mark.parametrize("scenario", ["healthy_3d_w8", "slow_rank_3d_w8"])
def test_recordings_with_injected_clocks_come_out_within_their_bounds(recordings, scenario, injected):
    known = recorded(recordings / "gloo" / scenario, injected)
    clocks = fit_clocks(known.trace, known.matches)
    assert clocks.component.tolist() == [0, 0, 0, 0]
    assert share_of_bound(known, clocks) <= 1.0
    # Two loaded cores: members end milliseconds apart. The offsets were tens of milliseconds.
    start, end = mapped(known, clocks)
    error = np.abs(without_common(known, *error_ns(known, start, end, int(clocks.reference[0]))))
    assert np.quantile(error, 0.99) <= 2_500_000
    assert [d for d, steps in enumerate(clocks.steps) if steps] == list(known.steps)


def test_recordings_made_with_wrong_clocks_come_out_right(recordings):
    """Those beside the checkout, where there are any; the injected ones above stand for them elsewhere."""
    for scenario in sorted((recordings / "gloo").glob("*__skew*")):
        known = recorded_skewed(scenario)
        clocks = fit_clocks(known.trace, known.matches)
        assert share_of_bound(known, clocks) <= 1.0
        start, end = mapped(known, clocks)
        error = np.abs(without_common(known, *error_ns(known, start, end, int(clocks.reference[0]))))
        assert np.quantile(error, 0.99) <= 1_000_000
        assert [d for d, steps in enumerate(clocks.steps) if steps] == list(known.steps)
