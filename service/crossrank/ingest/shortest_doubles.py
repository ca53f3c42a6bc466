"""Doubles as the shortest decimal text that reads back the same, compiled, in the form in which the JSON library writes them.

The digits are found by Schubfach (R. Giulietti, "The Schubfach way to render doubles", 2020). A double c * 2**q stands for all numbers
up to halfway to its neighbours. With k = floor(log10 of that interval's width) at most one multiple of 10**(k+1) and at least one of
10**k lies in it; so few candidates have to be compared. They are compared exactly by products with 126 bits of 10**-k, rounded so
that a lost remainder leaves an odd last bit. The table of powers is computed with Python's integers when this is imported.

Written: decimals from 1e-5 up to below 1e16 (`0.00012`, `120.0`), else with an exponent (`1.2e-6`, `1e16`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]  # it has no types
from numba import njit, types
from numba.extending import intrinsic

from crossrank.ingest.borrowed import borrowed

ROOM: Final = 26  # bytes a number may take: sign, 17 digits, point and up to five zeros or an exponent
_LEAST, _MOST = -292, 324  # powers of ten that occur
_SMALLEST_FIXED, _FIRST_SCIENTIFIC = -5, 16  # exponents of ten
_MANTISSA_BITS: Final = 52
_DIGITS_MAX: Final = 17


def _power(k: int) -> tuple[int, int]:
    """The upper and lower 64 bits of 10**k scaled to 128 bits, rounded up."""
    shift = ((k * 1741647) >> 19) - 127  # floor(log2 10**k) - 127
    top, bottom = 10 ** max(k, 0) << max(-shift, 0), 10 ** max(-k, 0) << max(shift, 0)
    value = -(-top // bottom)
    return value >> 64, value & (2**64 - 1)


_POWERS: Final = np.array([_power(k) for k in range(_LEAST, _MOST + 1)], np.uint64)


@intrinsic
def _high(typingctx: Any, a: Any, b: Any) -> Any:
    """The upper 64 bits of a product of two 64-bit numbers."""
    del typingctx, a, b

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        del context, signature
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@njit(cache=True, nogil=True, forceinline=True)
def _scaled(high: np.uint64, low: np.uint64, factor: np.uint64) -> np.uint64:
    """A factor times a power of ten / 2**127, rounded to an odd number where something is lost."""
    rest = high * factor
    below = rest + _high(low, factor)
    above = _high(high, factor) + np.uint64(below < rest)
    return above | np.uint64(below > np.uint64(1))


@njit(cache=True, nogil=True, forceinline=True)
def _shortest(bits: np.uint64, powers: np.ndarray) -> tuple[Any, Any]:
    """(digits as an integer, exponent of ten) of a positive finite double."""
    fraction = bits & np.uint64((1 << _MANTISSA_BITS) - 1)
    exponent = np.int64(bits >> np.uint64(_MANTISSA_BITS))
    c, q = fraction, np.int64(-1074)
    if exponent != 0:
        c, q = fraction | np.uint64(1 << _MANTISSA_BITS), exponent - 1075
        if -_MANTISSA_BITS <= q <= 0 and c & ((np.uint64(1) << np.uint64(-q)) - np.uint64(1)) == np.uint64(0):
            return c >> np.uint64(-q), np.int64(0)
    is_odd = c & np.uint64(1)
    is_closer_below = fraction == np.uint64(0) and exponent > 1
    k = (q * 1262611 - (524031 if is_closer_below else 0)) >> 22  # floor(log10 of 2**q, or of 3/4 of it)
    shift = np.uint64(q + ((-k * 1741647) >> 19) + 1)
    high, low = powers[-k - _LEAST, 0], powers[-k - _LEAST, 1]
    four = np.uint64(4)
    middle = _scaled(high, low, (four * c) << shift)
    lower = _scaled(high, low, (four * c - np.uint64(1 if is_closer_below else 2)) << shift) + is_odd
    upper = _scaled(high, low, (four * c + np.uint64(2)) << shift) - is_odd
    s = middle // four
    if s >= np.uint64(10):
        tens = s // np.uint64(10)
        down, up = lower <= np.uint64(40) * tens, np.uint64(40) * tens + np.uint64(40) <= upper
        if down != up:
            return tens + np.uint64(up), k + 1
    down, up = lower <= four * s, four * s + four <= upper
    if down != up:
        return s + np.uint64(up), k
    half = four * s + np.uint64(2)
    return s + np.uint64(middle > half or (middle == half and s & np.uint64(1) == np.uint64(1))), k


@njit(cache=True, nogil=True)
def _write(bits: np.ndarray, powers: np.ndarray, start: np.ndarray, size: np.ndarray, out: np.ndarray) -> None:
    bits, powers, start, size, out = borrowed(bits), borrowed(powers), borrowed(start), borrowed(size), borrowed(out)
    ten = np.uint64(10)
    at = 0
    for i in range(bits.size):
        start[i] = at
        if i > 0 and bits[i] == bits[i - 1]:
            start[i], size[i] = start[i - 1], size[i - 1]
            continue
        number = np.uint64(bits[i])
        if number >> np.uint64(63):
            out[at] = 45
            at += 1
        number &= np.uint64((1 << 63) - 1)
        digits, power = (np.uint64(0), np.int64(0)) if number == np.uint64(0) else _shortest(number, powers)
        while digits != np.uint64(0) and digits % ten == np.uint64(0):
            digits //= ten
            power += 1
        count, least = 1, ten
        if digits >= np.uint64(10**8):
            count, least = 9, np.uint64(10**9)
        while count < _DIGITS_MAX and digits >= least:
            least *= ten
            count += 1
        at = _text(digits, count, power + count - 1, out, at)
        size[i] = at - start[i]


@njit(cache=True, nogil=True, forceinline=True)
def _digits(digits: np.uint64, count: int, out: np.ndarray, at: int) -> Any:
    i = at + count - 1
    while i > at:
        rest = digits // np.uint64(100)
        pair = np.uint32(digits - rest * np.uint64(100))
        tens = pair // np.uint32(10)
        out[i], out[i - 1] = np.uint8(48 + pair - tens * np.uint32(10)), np.uint8(48 + tens)
        digits = rest
        i -= 2
    if i == at:
        out[at] = np.uint8(48 + digits)
    return at + count


@njit(cache=True, nogil=True, forceinline=True)
def _pointed(digits: np.uint64, count: int, whole: int, out: np.ndarray, at: int) -> Any:
    """The digits with a point after the first `whole` of them, of which there are more."""
    end = _digits(digits, count, out, at + 1)
    for i in range(at, at + whole):
        out[i] = out[i + 1]
    out[at + whole] = 46
    return end


@njit(cache=True, nogil=True)
def _text(digits: np.uint64, count: int, exponent: int, out: np.ndarray, at: int) -> Any:
    """Writes d.ddd * 10**exponent at a place and returns the one after it."""
    if _SMALLEST_FIXED <= exponent < 0:
        out[at], out[at + 1] = 48, 46
        at += 2
        for _ in range(-exponent - 1):
            out[at] = 48
            at += 1
        return _digits(digits, count, out, at)
    if 0 <= exponent < _FIRST_SCIENTIFIC:
        if count > exponent + 1:
            return _pointed(digits, count, exponent + 1, out, at)
        at = _digits(digits, count, out, at)
        for _ in range(exponent + 1 - count):
            out[at] = 48
            at += 1
        out[at], out[at + 1] = 46, 48
        return at + 2
    at = _pointed(digits, count, 1, out, at) if count > 1 else _digits(digits, count, out, at)
    out[at] = 101
    at += 1
    if exponent < 0:
        out[at] = 45
        at, exponent = at + 1, -exponent
    return _digits(np.uint64(exponent), 3 if exponent > 99 else 2 if exponent > 9 else 1, out, at)


def write(bits: np.ndarray, pad: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, size, bytes) of the texts of finite doubles (their bits, int64); `pad` more bytes follow the texts."""
    start, size = np.empty(bits.size, np.int64), np.empty(bits.size, np.int64)
    out = np.empty(ROOM * bits.size + pad, np.uint8)
    _write(bits, _POWERS, start, size, out)
    return start, size, out
