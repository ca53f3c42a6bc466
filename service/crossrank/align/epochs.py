"""Epochs: the stretches of a domain's clock between its steps, each treated as a clock of its own.

When NTP steps a clock by J, all later stamps are J off what the earlier ones promised. Splitting the domain there turns one
clock with a jump into two without. Stamps are told apart by their local time: a *cut* is the first local time of the later
epoch. A step forward leaves a gap in local time, so one cut separates all stamps. A step back makes |J| of local time happen
twice, and stamps of the two passes cannot be told apart by their times: they are doubtful, and may be |J| off.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crossrank.align.constraints import Constraints
from crossrank.model.arrays import BoolArray, Int32Array, Int64Array
from crossrank.model.trace import JobTrace


@dataclass(frozen=True, slots=True)
class Cut:
    """A step of one domain: stamps from local time `from_ns` on are of the later epoch; the clock moved by about `size_ns`.

    Which epoch a stamp is of is uncertain for local times in [doubt_from_ns, doubt_to_ns), empty where all is clear.
    """

    domain: int
    from_ns: int
    size_ns: int
    doubt_from_ns: int
    doubt_to_ns: int


@dataclass(frozen=True, slots=True)
class Epochs:
    """All clocks (V of them): the D first epochs of the domains, then one more for each cut, in the order of `cuts`.

    cuts: ascending by (domain, from_ns). base_ns: [V] local time of the axis zero. domain: [V].
    """

    cuts: tuple[Cut, ...]
    base_ns: Int64Array
    domain: Int32Array

    def __len__(self) -> int:
        return len(self.domain)

    def clock_of(self, domain: Int32Array, local_ns: Int64Array) -> Int32Array:
        """Clock of each stamp."""
        clock = domain.astype(np.int32)
        for i, cut in enumerate(self.cuts):
            clock[(domain == cut.domain) & (local_ns >= cut.from_ns)] = self.first_of_cuts + i
        return clock

    def doubtful(self, domain: Int32Array, local_ns: Int64Array) -> BoolArray:
        """Stamps whose epoch is uncertain."""
        doubt = np.zeros(len(domain), dtype=bool)
        for cut in self.cuts:
            if cut.doubt_to_ns > cut.doubt_from_ns:
                doubt |= (domain == cut.domain) & (local_ns >= cut.doubt_from_ns) & (local_ns < cut.doubt_to_ns)
        return doubt

    @property
    def first_of_cuts(self) -> int:
        """Number of the clock that the first cut begins."""
        return len(self.domain) - len(self.cuts)

    def of_domain(self, domain: int) -> tuple[int, ...]:
        """Clocks of a domain in the order of time."""
        return (domain, *(self.first_of_cuts + i for i, cut in enumerate(self.cuts) if cut.domain == domain))


def split(base_ns: Int64Array, cuts: tuple[Cut, ...]) -> Epochs:
    """Clocks of D domains (bases [D]) with these cuts. A later epoch's axis zero is moved by the size of the step."""
    cuts = tuple(sorted(cuts, key=lambda cut: (cut.domain, cut.from_ns)))
    base, domain = base_ns.tolist(), list(range(len(base_ns)))
    moved = dict(enumerate(base))
    for cut in cuts:
        moved[cut.domain] += cut.size_ns
        base.append(moved[cut.domain])
        domain.append(cut.domain)
    return Epochs(cuts, np.array(base, dtype=np.int64), np.array(domain, dtype=np.int32))


def certain(trace: JobTrace, facts: Constraints, epochs: Epochs) -> Constraints:
    """The facts without those that rest on a doubtful stamp."""
    if not epochs.cuts:
        return facts

    domain = trace.domain[facts.span]
    member = ~(epochs.doubtful(domain, trace.start_ns[facts.span]) | epochs.doubtful(domain, trace.end_ns[facts.span]))
    count = np.bincount(facts.instance[member], minlength=len(facts.ptr) - 1)
    ptr = np.concatenate(([0], np.cumsum(count[count > 0]))).astype(np.int64)
    pair = ~(epochs.doubtful(facts.before_domain, facts.before_ns) | epochs.doubtful(facts.after_domain, facts.after_ns))
    return replace(facts.of_pairs(pair), ptr=ptr, span=facts.span[member], family=facts.family[count > 0])
