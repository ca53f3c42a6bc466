"""How each clock domain maps onto the common timeline, and how sure we are.

    reference_ns = local_ns + offset_ns(local_ns)

A positive offset means the clock is behind the reference. The offset is piecewise linear between knots; a clock step (NTP)
starts a new epoch with knots of its own. Domains that no chain of communication connects are in different components: their
offset to each other cannot be known and is never invented.

Three uncertainties, kept apart: the guaranteed interval (from happened-before constraints alone), `sigma_ns` (statistical, from
the fit's residuals) and the bias floor (what an asymmetric completion may hide from both).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossrank.model.arrays import Float64Array, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class Epoch:
    """One stretch of a domain's clock without a step. Valid for local times from `from_ns` on (the first one for all before)."""

    from_ns: int
    knot_ns: Int64Array  # [k] local times, ascending, k >= 1
    offset_ns: Int64Array  # [k]; constant slope beyond the ends

    def offset_at(self, local_ns: Int64Array) -> Int64Array:
        """Offset at local times; linear between knots, the end segments continue."""
        if len(self.knot_ns) == 1:
            return np.full(len(local_ns), self.offset_ns[0], dtype=np.int64)
        j = np.clip(np.searchsorted(self.knot_ns, local_ns, side="right") - 1, 0, len(self.knot_ns) - 2)
        run = (self.knot_ns[j + 1] - self.knot_ns[j]).astype(np.float64)
        rise = (self.offset_ns[j + 1] - self.offset_ns[j]).astype(np.float64)
        since = (local_ns - self.knot_ns[j]).astype(np.float64)
        return self.offset_ns[j] + np.rint(rise * (since / run)).astype(np.int64)


@dataclass(frozen=True, slots=True)
class ClockStep:
    """A jump of one domain's clock: at local time `t_ns` it moved forward by `size_ns` (negative: back)."""

    t_ns: int
    size_ns: int


UNALIGNED_NS = np.iinfo(np.int64).max // 4  # "no bound at all": larger than any time difference, small enough to add


@dataclass(frozen=True, slots=True)
class PairBounds:
    """How wrong differences of times on two of D clocks can be: |error of (time in a - time in b)|, a guaranteed half-width.

    within_ns: [D] of two times on one clock; 0 unless the clock was stepped. between_ns: [D, D], its diagonal is `within_ns`, and
    UNALIGNED_NS where nothing connects two clocks; None where clocks are so many that a bound for every pair was not worked out.
    """

    within_ns: Int64Array
    between_ns: Int64Array | None

    def of(self, a: Int32Array, b: Int32Array) -> Int64Array:
        """Bounds of pairs of clocks, elementwise."""
        if self.between_ns is not None:
            return self.between_ns[a, b]
        return np.where(a == b, self.within_ns[a], UNALIGNED_NS)

    def widest(self, clocks: Int32Array) -> int:
        """The largest bound between any two of some clocks."""
        if self.between_ns is None:
            return UNALIGNED_NS if len(np.unique(clocks)) > 1 else int(self.within_ns[clocks].max())
        return int(self.between_ns[np.ix_(clocks, clocks)].max())

    def widest_known(self) -> int:
        """The largest bound there is, 0 without any."""
        bounds = self.within_ns if self.between_ns is None else self.between_ns
        known = bounds[bounds < UNALIGNED_NS]
        return int(known.max()) if known.size else 0


@dataclass(frozen=True, slots=True)
class ClockMap:
    """The clocks of one trace. D domains, in the order of `trace.domains`."""

    epochs: tuple[tuple[Epoch, ...], ...]  # [D], each ascending by from_ns, at least one
    steps: tuple[tuple[ClockStep, ...], ...]  # [D]
    component: Int32Array  # [D] connected component
    reference: Int32Array  # [components] domain whose clock is the component's timeline
    sigma_ns: Float64Array  # [D] statistical error against the reference
    bias_floor_ns: Float64Array  # [D]
    bound_lo_ns: Int64Array  # [D] the true correction is within fitted + [lo, hi] (guaranteed, worst window)
    bound_hi_ns: Int64Array  # [D]
    pairs: PairBounds
    contradicted_ns: tuple[
        tuple[int, int], ...
    ] = ()  # about when facts contradicted each other, [from, to): intervals widened there

    def to_reference(self, domain: Int32Array, local_ns: Int64Array) -> Int64Array:
        """Local stamps of any domains on the common timeline; int64 in, int64 out."""
        out = local_ns.copy()
        order = np.argsort(domain, kind="stable")
        edges = np.searchsorted(domain[order], np.arange(len(self.epochs) + 1))
        for d, epochs in enumerate(self.epochs):
            rows = order[edges[d] : edges[d + 1]]
            if len(rows) == 0:
                continue
            local = local_ns[rows]
            which = np.searchsorted(np.array([e.from_ns for e in epochs[1:]], dtype=np.int64), local, side="right")
            for i, epoch in enumerate(epochs):
                here = which == i
                out[rows[here]] = local[here] + epoch.offset_at(local[here])
        return out


def identity_map(domains: int) -> ClockMap:
    """Clocks taken as they are: every domain its own component, nothing known about any other."""
    zero = np.zeros(1, dtype=np.int64)
    return ClockMap(
        epochs=tuple((Epoch(0, zero, zero),) for _ in range(domains)),
        steps=tuple(() for _ in range(domains)),
        component=np.arange(domains, dtype=np.int32),
        reference=np.arange(domains, dtype=np.int32),
        sigma_ns=np.zeros(domains),
        bias_floor_ns=np.zeros(domains),
        bound_lo_ns=np.zeros(domains, dtype=np.int64),
        bound_hi_ns=np.zeros(domains, dtype=np.int64),
        pairs=PairBounds(np.zeros(domains, dtype=np.int64), None),
    )
