"""Numbers for operations without seq that were not counted from a common start: windows of ring buffers, aligned by content.

A ring buffer keeps the last so many operations, so the windows of two ranks begin at different operations, and without sequence
numbers the first of one is not the first of the other. But what they hold tells: laid over each other with the right shift, all
operations in the overlap agree in operation, size and element type. The longest window is the reference; every other one is
shifted to where the whole overlap agrees.

    confidence   0.95   one shift fits, over _SURE_OVERLAP operations of at least two sorts
                 0.5    several fit (a loop repeats itself): the one whose raw stamps are nearest is taken, and proves nothing
                 none   no shift fits: something is missing in the middle, and the window stays unmatched
"""

from __future__ import annotations

from typing import Final

import numpy as np

from crossrank.model.arrays import Float64Array, Int64Array

SURE: Final = 0.95
UNSURE: Final = 0.5
_SURE_OVERLAP: Final = 8
_LEAST_OVERLAP: Final = 2
_LONGEST: Final = 8192  # operations of one rank compared; longer windows are compared by their end


def align_windows(what: Int64Array, rank: Int64Array, start_ns: Int64Array) -> tuple[Int64Array, Float64Array]:
    """Number (from 0, by the reference) and confidence of each of m operations of one group; confidence 0 where nothing fits.

    what: codes of operation, size and type. start_ns is only compared roughly across ranks, to choose between equal fits.
    O(ranks x window x shifts).
    """
    order = np.lexsort((start_ns, rank))
    ranks, first, count = np.unique(rank[order], return_index=True, return_counts=True)
    number = np.zeros(len(what), dtype=np.int64)
    confidence = np.zeros(len(what))
    if len(ranks) == 0:
        return number, confidence
    windows = [order[f : f + c][-_LONGEST:] for f, c in zip(first.tolist(), count.tolist(), strict=True)]
    reference = windows[int(np.argmax(count))]
    for window in windows:
        shift, sure = (0, SURE) if window is reference else _best_shift(what, start_ns, reference, window)
        number[window] = np.arange(len(window)) + shift
        confidence[window] = sure
    return number, confidence


def _best_shift(what: Int64Array, start_ns: Int64Array, reference: Int64Array, window: Int64Array) -> tuple[int, float]:
    """Shift of a window against the reference, and the confidence in it."""
    ours, theirs = what[window], what[reference]
    fitting: list[tuple[int, int, float]] = []  # overlap, shift, how far apart by the raw stamps
    least = min(_LEAST_OVERLAP, len(ours))
    for shift in range(least - len(ours), len(theirs) - least + 1):
        lo, hi = max(0, shift), min(len(theirs), shift + len(ours))
        if hi - lo >= least and np.array_equal(ours[lo - shift : hi - shift], theirs[lo:hi]):
            apart = np.abs(start_ns[window[lo - shift : hi - shift]] - start_ns[reference[lo:hi]]).astype(np.float64)
            fitting.append((hi - lo, shift, float(np.median(apart))))
    if not fitting:
        return 0, 0.0
    longest = max(overlap for overlap, _, _ in fitting)
    rivals = [f for f in fitting if 2 * f[0] >= longest]
    _, shift, _ = min(rivals, key=lambda f: (f[2], -f[0], f[1]))
    overlap = next(o for o, s, _ in rivals if s == shift)
    lo = max(0, shift)
    sorts = len(np.unique(theirs[lo : lo + overlap]))
    return shift, SURE if len(rivals) == 1 and overlap >= _SURE_OVERLAP and sorts > 1 else UNSURE
