"""The constant part of each clock's offset, from the quickest facts of the whole recording.

The fit takes members of a collective to end together. Where one rank always ends first, say the hub of the algorithm, the fit is
wrong by that habit, and more rows do not help. The quickest facts do not depend on habits: between the start of one side and the
end of the other lies at least the bare latency, x_ab from a to b and x_ba back, and if the bare latency is the same both ways

    error(b) - error(a) = (x_ba - x_ab) / 2

as for messages, but over the whole recording, which finds the rare moment when nothing was in the way. How far that is from the
truth shows in how close the next quickest facts come. How far the habit goes shows in how much different kinds of collectives
disagree about a clock (where there is one kind only nothing shows it, and it may be as large as the jitter). Both are weighed
against each other by least squares:

    minimise  sum_v (delta_v / habit_v)^2  +  sum_ab w ((delta_b - delta_a - (x_ba - x_ab) / 2) / doubt_ab)^2

On quiet networks habits are small beside the doubt and nothing moves; where jitter is milliseconds the quickest facts decide. The
inverse of the normal matrix says what remains unknown: the bias that more rows of the same kind would not take away.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from crossrank.align.problem import Fit, Sightings
from crossrank.model.arrays import Float64Array, Int32Array, Int64Array

QUICKEST = 4  # facts kept for each direction of each pair
LATENCY_SHARE = 0.5  # bare latencies may differ by this share between the directions: most of what the bounds leave open
HABIT_SHARE = 1.0  # of the jitter: what one kind of collective may hide (on recordings of one kind 0.2 to 1)
LEAST_HABIT_SHARE = 0.02
SIGNIFICANT = 5.0  # times the variance that chance explains
FAMILY_ROWS = 40  # of one clock in one family: fewer do not tell its habit
LOOKS = 2.0  # pairs of one clock are not independent: all together count as two
MOST_DOMAINS = 2000
EARLIER_SHARE = 0.8  # of what all stretches before say of habits, in the mean with one more


@dataclass(frozen=True, slots=True)
class Level:
    """delta_ns: [D] what to add to the correction of each domain. unknown: [D, D] covariance in ns^2 of what is still unknown then."""

    delta_ns: Float64Array
    unknown: Float64Array | None
    quickest: Float64Array | None = None  # [D, D, QUICKEST] facts it rests on, for what comes later
    habit: Float64Array | None = None  # [D]

    def bias_ns(self, reference: Int32Array) -> Float64Array:
        """[D] one sigma of what is unknown between each domain and its reference [D]; zero where none was worked out."""
        if self.unknown is None:
            return np.zeros(len(self.delta_ns))
        variance, d = np.diagonal(self.unknown), np.arange(len(reference))
        return np.sqrt(np.maximum(variance + variance[reference] - 2.0 * self.unknown[d, reference], 0.0))


def level(seen: Sightings, fit: Fit, component: Int32Array, earlier: Level | None = None) -> Level:
    """Constant corrections by the quickest facts, those of an earlier stretch among them. All zero for more than MOST_DOMAINS domains."""
    domains = len(component)
    delta = np.zeros(domains)
    if domains > MOST_DOMAINS or fit.sigma_ns <= 0.0:
        return Level(delta, None)
    quickest = _quickest(seen, fit, domains)
    habit = habits(seen, fit, domains)
    if earlier is not None and earlier.quickest is not None and earlier.habit is not None:
        quickest = np.sort(np.concatenate((quickest, earlier.quickest), axis=2), axis=2)[:, :, :QUICKEST]
        habit = np.sqrt(EARLIER_SHARE * earlier.habit**2 + (1.0 - EARLIER_SHARE) * habit**2)
    x, next_ = quickest[:, :, 0], quickest[:, :, QUICKEST - 1]
    a, b = np.nonzero(np.triu(np.isfinite(next_) & np.isfinite(next_.T), 1))
    if len(a) == 0:
        return Level(delta, None, quickest, habit)
    ahead = (x[b, a] - x[a, b]) / 2.0
    doubt = (next_[a, b] - x[a, b] + next_[b, a] - x[b, a]) / 4.0 + LATENCY_SHARE * np.abs(x[a, b] + x[b, a]) / 2.0
    pairs = np.bincount(a, minlength=domains) + np.bincount(b, minlength=domains)
    weight = LOOKS / np.maximum(LOOKS, np.maximum(pairs[a], pairs[b])) / np.maximum(doubt, 1.0) ** 2
    normal = np.diag(1.0 / habit**2)
    np.add.at(normal, (a, a), weight)
    np.add.at(normal, (b, b), weight)
    normal[a, b] -= weight
    normal[b, a] -= weight
    right = np.bincount(b, weight * ahead, domains) - np.bincount(a, weight * ahead, domains)
    unknown = np.linalg.inv(normal).astype(np.float64)
    return Level(unknown @ right, unknown, quickest, habit)


def habits(seen: Sightings, fit: Fit, domains: int) -> Float64Array:
    """[D] how far the ends of each clock may be off by habit, ns: what kinds of collectives disagree about it."""
    curve = fit.curve[seen.end_clock]
    family = np.repeat(np.arange(len(seen.family_ptr) - 1), np.diff(seen.family_ptr))
    key = family * domains + curve
    order = np.lexsort((fit.residual, key))
    first = np.flatnonzero(np.diff(key[order], prepend=-1))
    count = np.diff(first, append=len(key))
    told = count >= FAMILY_ROWS
    domain = curve[order[first[told]]]
    middle = fit.residual[order[(first + count // 2)[told]]]
    # What all clocks of a family share is its noise; a habit is what one clock has beyond them.
    of = family[order[first[told]]]
    middle = middle - (np.bincount(of, middle) / np.maximum(np.bincount(of), 1))[of]
    families = np.bincount(domain, minlength=domains)
    mean = np.bincount(domain, middle, domains) / np.maximum(families, 1)
    spread = np.bincount(domain, (middle - mean[domain]) ** 2, domains) / np.maximum(families - 1, 1)
    # Medians of finite samples disagree even where there is no habit.
    chance = np.bincount(domain, (1.25 * fit.sigma_ns) ** 2 / count[told], domains) / np.maximum(families, 1)
    habit = np.where(families > 1, np.sqrt(np.maximum(spread - SIGNIFICANT * chance, 0.0)), HABIT_SHARE * fit.sigma_ns)
    return np.maximum(habit, max(LEAST_HABIT_SHARE * fit.sigma_ns, 1.0))


def _quickest(seen: Sightings, fit: Fit, domains: int) -> Float64Array:
    """[D, D, QUICKEST] smallest (end in b) - (start in a), ascending."""
    out = np.full((domains, domains, QUICKEST), np.inf)
    end, start = fit.correct(seen.end, seen.end_clock), fit.correct(seen.start, seen.start_clock)
    _of_collectives(seen.ptr, fit.curve[seen.start_clock], start, fit.curve[seen.end_clock], end, out)
    before, after = fit.correct(seen.before, seen.before_clock), fit.correct(seen.after, seen.after_clock)
    _of_messages(fit.curve[seen.before_clock], fit.curve[seen.after_clock], after - before, out)
    return out


@numba.njit(cache=True, nogil=True)
def _keep(smallest: Float64Array, x: float) -> None:
    """Puts x into its place among the smallest so far."""
    i = len(smallest) - 1
    if x >= smallest[i]:
        return
    while i > 0 and smallest[i - 1] > x:
        smallest[i] = smallest[i - 1]
        i -= 1
    smallest[i] = x


@numba.njit(cache=True, nogil=True)
def _of_messages(before: Int32Array, after: Int32Array, delay: Float64Array, out: Float64Array) -> None:
    for i in range(len(delay)):
        _keep(out[before[i], after[i]], delay[i])


@numba.njit(cache=True, nogil=True)
def _of_collectives(
    ptr: Int64Array, start_curve: Int32Array, start: Float64Array, end_curve: Int32Array, end: Float64Array, out: Float64Array
) -> None:
    """Per instance and ordered pair of domains: the earliest end of the one after the latest start of the other."""
    domains = out.shape[0]
    latest, earliest = np.full(domains, -np.inf), np.full(domains, np.inf)
    here = np.empty(domains, np.int32)
    for k in range(len(ptr) - 1):
        n = 0
        for r in range(ptr[k], ptr[k + 1]):
            # A member starts and ends in one domain.
            if latest[start_curve[r]] == -np.inf:
                here[n] = start_curve[r]
                n += 1
            latest[start_curve[r]] = max(latest[start_curve[r]], start[r])
            earliest[end_curve[r]] = min(earliest[end_curve[r]], end[r])
        for a in here[:n]:
            for b in here[:n]:
                if a != b:
                    _keep(out[a, b], earliest[b] - latest[a])
        for a in here[:n]:
            latest[a] = -np.inf
            earliest[a] = np.inf
