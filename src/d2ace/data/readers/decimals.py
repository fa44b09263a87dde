"""Decimal numbers out of a byte buffer, all at once, rounded exactly as ``float()`` rounds.

A mantissa below 10^15 and a power of ten up to 10^15 are exact doubles, so that their one division
rounds once, to the double that ``float()`` gives. Other tokens are left to `parse_one`.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

PADDING = 32
"""Bytes that the caller leaves after the last token, so that reading ahead stays inside."""
LARGEST = float(np.finfo(np.float32).max)
"""What a feature may be at most."""

_DIGITS = 15
_POWERS = 10.0 ** np.arange(_DIGITS + 3)
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LENGTHS = np.arange(9)
# By the number of characters in a word: the bits above them, and zeros ("0") in their places.
_SHIFT = np.where(_LENGTHS > 0, 8 * (8 - _LENGTHS), 0).astype(np.uint64)
_ZEROS = np.uint64(0x3030303030303030) << _SHIFT


def parse(buffer: Bytes, start: Places, length: Places) -> tuple[Floats, Flags]:
    """Values of the tokens, and which of them are plain decimals of at most 15 digits.

    Values of the other tokens are meaningless.
    """
    negative = None
    if ((buffer == ord("-")) | (buffer == ord("+"))).any():
        first = buffer[start]
        negative = first == ord("-")
        signed = negative | (first == ord("+"))
        start, length = start + signed, length - signed
    single, short = length == 1, (length >= 1) & (length <= 8)
    if short.all() and 2 * np.count_nonzero(single) < len(single):
        value, plain = _parse_short(buffer, start, length)
    else:  # each kind by itself; single digits, the most frequent cells of all, need no work
        digit = buffer[start] - np.uint8(48)  # wraps below "0", so one comparison tells digits
        value, plain = digit.astype(np.float64), (digit < 10) & single
        long = (length > 8) & (length <= _DIGITS + 1)
        for chosen, read in ((short & ~single, _parse_short), (long, _parse_long)):
            where = np.flatnonzero(chosen)
            if len(where):
                value[where], plain[where] = read(buffer, start[where], length[where])
    return (value if negative is None else np.where(negative, -value, value)), plain


def _parse_short(buffer: Bytes, start: Places, length: Places) -> tuple[Floats, Flags]:
    """Tokens of one to eight characters: each is one 64-bit word, its last character on top."""
    words: npt.NDArray[np.uint64] = np.ndarray((len(buffer) - 7,), "<u8", buffer, strides=(1,))
    word = words[start] << _SHIFT[length]
    power = None
    if (buffer == ord(".")).any():
        # A byte is zero in `marks` where the word has a dot; the lowest set bit tells the first.
        marks = word ^ _every(ord("."))
        marks = (marks - _every(0x01)) & ~marks & _every(0x80)
        dot = marks & (~marks + np.uint64(1))
        has_dot = dot != 0
        if has_dot.any():
            before = word & ((dot >> np.uint64(7)) - np.uint64(1))
            after = word & ~((dot << np.uint64(1)) - np.uint64(1))
            word = np.where(has_dot, before << np.uint64(8) | after, word)
            power = _POWERS[np.where(has_dot, 8 - np.frexp(dot.astype(np.float64))[1] // 8, 0)]
            length = length - has_dot
    high, zeros = _every(0xF0), _ZEROS[length]
    plain = ((word & high) == zeros) & (((word + _every(0x06)) & high) == zeros) & (length > 0)
    # Neighbouring digits, then pairs, then fours are put together in parallel.
    word &= _every(0x0F)
    word = (word * np.uint64(10) + (word >> np.uint64(8))) & np.uint64(0x00FF00FF00FF00FF)
    word = (word * np.uint64(100) + (word >> np.uint64(16))) & np.uint64(0x0000FFFF0000FFFF)
    word = (word * np.uint64(10000) + (word >> np.uint64(32))) & np.uint64(0xFFFFFFFF)
    value = word.astype(np.float64)
    return (value if power is None else value / power), plain


def _parse_long(buffer: Bytes, start: Places, length: Places) -> tuple[Floats, Flags]:
    """Tokens of up to sixteen characters, one character of all of them after the other."""
    mantissa = np.zeros(len(start), dtype=np.int64)
    digits, dots, after_dot = mantissa.copy(), mantissa.copy(), mantissa.copy()
    for i in range(int(length.max(initial=0))):
        character = buffer[start + i]
        inside = length > i
        digit = character - np.uint8(48)  # wraps below "0", so one comparison tells digits
        is_digit = (digit < 10) & inside
        mantissa = np.where(is_digit, mantissa * 10 + digit, mantissa)
        digits += is_digit
        dots += (character == ord(".")) & inside
        after_dot += is_digit & (dots > 0)
    plain = (digits > 0) & (digits <= _DIGITS) & (dots <= 1) & (digits + dots == length)
    return mantissa / _POWERS[np.minimum(after_dot, _DIGITS)], plain


def parse_one(token: bytes) -> float | None:
    """The value of one token, or ``None`` if it is no decimal number."""
    if len(token) > 400 or not _NUMBER.fullmatch(token):
        return None
    return float(token)


def _every(byte: int) -> np.uint64:
    return np.uint64(byte * 0x0101010101010101)
