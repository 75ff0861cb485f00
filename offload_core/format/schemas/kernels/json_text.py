"""Texts and numbers of JSON: where they end, and what they are.

A position below 0 leaves the payload to Python's `json`: it is wrong, or only rare.
Source: RFC 8259; D. Lemire, "Number Parsing at a Gigabyte per Second", 2021, for doubles.
"""

from __future__ import annotations

import numpy as np

from offload_core.format.codec.kernels.intrinsics import bits_of, leading_zeros, load_i64
from offload_core.format.kernel import kernel
from offload_core.format.schemas.kernels.cell_arrays import is_text

_QUOTE, _BACKSLASH, _MINUS, _POINT, _ZERO = 34, 92, 45, 46, 48
_ONES = np.uint64(0x0101010101010101)
_TOPS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)

LEAST_POWER, MOST_POWER = -342, 308
"""Powers of ten of a number of at most 19 digits, beyond which its double is 0 or infinite."""
_EXACT_POWERS = np.array([float(10**power) for power in range(23)])
"""Powers of ten that doubles hold."""
_MOST_DIGITS = 19
"""A number of more digits may not fit 64 bits."""
_MOST_EXPONENT = 10_000
_LOW = np.uint64(0xFFFFFFFF)
_ZEROS = np.uint64(0x3030303030303030)
_SIXES = np.uint64(0x0606060606060606)
_UPPER_HALVES = np.uint64(0xF0F0F0F0F0F0F0F0)
_OF_PAIRS = np.uint64(0x00FF00FF00FF00FF)
_OF_FOURS = np.uint64(0x0000FFFF0000FFFF)


@kernel
def is_space(byte):
    """True for white space of JSON."""
    return byte <= 32 and (byte == 32 or byte == 10 or byte == 13 or byte == 9)


@kernel
def text_end(data, position, end):
    """The position of the quote that ends the text whose first byte is at `position`, and whether it has escapes.

    −1 if there is none, or the text is not UTF-8 or has control characters.

    Bounds: reads `data` below `end` only; eight bytes at once where all of them are.
    """
    begin = position
    has_escapes = False
    is_ascii = True
    while True:
        while position + 8 <= end:
            word = np.uint64(load_i64(data, position))
            quotes, backslashes = word ^ _QUOTES, word ^ _BACKSLASHES
            ends = (quotes - _ONES) & ~quotes | (backslashes - _ONES) & ~backslashes
            found = (ends | (word - _SPACES) & ~word | word) & _TOPS
            if found:
                position += np.int64(leading_zeros(found)) >> 3  # that byte, or one before it
                break
            position += 8
        if position >= end:
            return np.int64(-1), has_escapes
        byte = data[position]
        position += 1
        if byte == _QUOTE:
            break
        if byte == _BACKSLASH:
            has_escapes = True
            position += 1
        elif byte < 32:
            return np.int64(-1), has_escapes
        elif byte >= 128:
            is_ascii = False
    if not is_ascii and not is_text(data, begin, position - 1):
        return np.int64(-1), has_escapes
    return position - 1, has_escapes


@kernel
def _hex_digits(data, position, end):
    """The number of four hexadecimal digits at `position`; −1 if they are not there."""
    if end - position < 4:
        return np.int64(-1)
    number = np.int64(0)
    for i in range(4):
        byte = np.int64(data[position + i])
        if 48 <= byte <= 57:
            digit = byte - 48
        elif 65 <= byte <= 70:
            digit = byte - 55
        elif 97 <= byte <= 102:
            digit = byte - 87
        else:
            return np.int64(-1)
        number = number << 4 | digit
    return number


@kernel
def unescape(data, position, end, out, used):
    """Write the text from `position` to `end` (its quote) without its escapes at `out[used]`; where it ends there.

    −1 if an escape is not right, half a surrogate pair, or `out` is full.

    Bounds: reads `data` below `end` only; writes `out` where four bytes are left.
    """
    while position < end:
        if used + 4 > len(out):
            return np.int64(-1)
        byte = data[position]
        position += 1
        if byte != _BACKSLASH:
            out[used] = byte
            used += 1
            continue
        if position >= end:
            return np.int64(-1)
        byte = data[position]
        position += 1
        if byte == 117:  # u
            code = _hex_digits(data, position, end)
            position += 4
            if 0xD800 <= code < 0xDC00:
                if end - position < 6 or data[position] != _BACKSLASH or data[position + 1] != 117:
                    return np.int64(-1)
                low = _hex_digits(data, position + 2, end)
                position += 6
                if not 0xDC00 <= low < 0xE000:
                    return np.int64(-1)
                code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00))
            elif code < 0 or 0xDC00 <= code < 0xE000:
                return np.int64(-1)
            if code < 0x80:
                out[used] = code
                used += 1
            elif code < 0x800:
                out[used] = 0xC0 | code >> 6
                out[used + 1] = 0x80 | code & 63
                used += 2
            elif code < 0x10000:
                out[used] = 0xE0 | code >> 12
                out[used + 1] = 0x80 | code >> 6 & 63
                out[used + 2] = 0x80 | code & 63
                used += 3
            else:
                out[used] = 0xF0 | code >> 18
                out[used + 1] = 0x80 | code >> 12 & 63
                out[used + 2] = 0x80 | code >> 6 & 63
                out[used + 3] = 0x80 | code & 63
                used += 4
            continue
        if byte == 110:  # n
            byte = np.uint8(10)
        elif byte == 116:  # t
            byte = np.uint8(9)
        elif byte == 114:  # r
            byte = np.uint8(13)
        elif byte == 98:  # b
            byte = np.uint8(8)
        elif byte == 102:  # f
            byte = np.uint8(12)
        elif byte != _QUOTE and byte != _BACKSLASH and byte != 47:
            return np.int64(-1)
        out[used] = byte
        used += 1
    return used


@kernel
def _escapes_are_right(data, position, end):
    """True if each escape of a text without a column is one.

    Bounds: reads `data` below `end` only.
    """
    while position < end:
        byte = data[position]
        position += 1
        if byte != _BACKSLASH:
            continue
        if position >= end:
            return False
        byte = data[position]
        position += 1
        if byte == 117:
            if _hex_digits(data, position, end) < 0:
                return False
            position += 4
        elif (
            byte != 110 and byte != 116 and byte != 114 and byte != 98 and byte != 102
            and byte != _QUOTE and byte != _BACKSLASH and byte != 47
        ):  # fmt: skip
            return False
    return True


@kernel
def skip_text(data, position, end):
    """The position after the quote that ends the text at `position`, which has no column; −1 if it is not decided.

    Bounds: reads `data` below `end` only.
    """
    stop, has_escapes = text_end(data, position, end)
    if stop < 0 or (has_escapes and not _escapes_are_right(data, position, stop)):
        return np.int64(-1)
    return stop + 1


@kernel
def read_base64(data, position, end, out, used):
    """Write the bytes of base64 text at `out[used]`; where they end there, −1 if it is not plain base64 of RFC 4648.

    Bounds: reads `data` below `end` only; writes `out` where three bytes are left.
    """
    if (end - position) % 4:
        return np.int64(-1)
    while position < end:
        if used + 3 > len(out):
            return np.int64(-1)
        word = np.int64(0)
        padding = 0
        for i in range(4):
            byte = np.int64(data[position + i])
            if 65 <= byte <= 90:
                digit = byte - 65
            elif 97 <= byte <= 122:
                digit = byte - 71
            elif 48 <= byte <= 57:
                digit = byte + 4
            elif byte == 43:
                digit = np.int64(62)
            elif byte == 47:
                digit = np.int64(63)
            elif byte == 61 and i >= 2 and position + 4 == end:
                digit = np.int64(0)
                padding += 1
            else:
                return np.int64(-1)
            if padding and byte != 61:
                return np.int64(-1)
            word = word << 6 | digit
        position += 4
        out[used] = word >> 16 & 255
        out[used + 1] = word >> 8 & 255
        out[used + 2] = word & 255
        used += 3 - padding
    return used


@kernel
def _read_digits(data, position, end, digits):
    """The number (uint64) of `digits` and the decimal digits at `position`, and where they end.

    Bounds: reads `data` below `end` only; eight bytes at once where all of them are.
    """
    while position + 8 <= end:
        word = np.uint64(load_i64(data, position))
        if (word & _UPPER_HALVES) != _ZEROS or ((word + _SIXES) & _UPPER_HALVES) != _ZEROS:
            break
        word -= _ZEROS
        word = (word >> np.uint64(8) & _OF_PAIRS) * np.uint64(10) + (word & _OF_PAIRS)
        word = (word >> np.uint64(16) & _OF_FOURS) * np.uint64(100) + (word & _OF_FOURS)
        word = (word >> np.uint64(32)) * np.uint64(10_000) + (word & _LOW)
        digits = digits * np.uint64(100_000_000) + word
        position += 8
    while position < end and 48 <= data[position] <= 57:
        digits = digits * np.uint64(10) + np.uint64(data[position] - 48)
        position += 1
    return digits, position


@kernel(inline=True)
def read_number(data, position, end):
    """The number at `position`: its digits (uint64), power of ten, whether it is negative and whole, and where it ends.

    Whole is what has neither fraction nor exponent. The position is −1 if it is no number; the digits are right if at
    most 19 count, which the last value tells.

    Bounds: reads `data` below `end` only.
    """
    digits = np.uint64(0)
    count = np.int64(0)
    power = np.int64(0)
    is_negative = position < end and data[position] == _MINUS
    if is_negative:
        position += 1
    begin = position
    is_whole = True
    if position < end and data[position] == _ZERO:
        position += 1
    else:
        digits, position = _read_digits(data, position, end, digits)
        count = position - begin
    if position == begin:
        return digits, power, is_negative, is_whole, np.int64(-1), False
    if position < end and data[position] == _POINT:
        is_whole = False
        position += 1
        begin = position
        if count == 0:  # zeros before the first digit do not count
            while position < end and data[position] == _ZERO:
                position += 1
        counted = position
        digits, position = _read_digits(data, position, end, digits)
        count += position - counted
        power = begin - position
        if power == 0:
            return digits, power, is_negative, is_whole, np.int64(-1), False
    if position < end and (data[position] == 101 or data[position] == 69):
        is_whole = False
        position += 1
        is_below = position < end and data[position] == _MINUS
        if is_below or (position < end and data[position] == 43):
            position += 1
        begin = position
        exponent = np.int64(0)
        while position < end and 48 <= data[position] <= 57:
            exponent = min(exponent * 10 + np.int64(data[position] - 48), np.int64(_MOST_EXPONENT))
            position += 1
        if position == begin:
            return digits, power, is_negative, is_whole, np.int64(-1), False
        power += -exponent if is_below else exponent
    return digits, power, is_negative, is_whole, position, count <= _MOST_DIGITS


@kernel
def skip_number(data, position, end):
    """The position after the number at `position`; −1 if it is none.

    Bounds: reads `data` below `end` only.
    """
    _digits, _power, _negative, _whole, position, _exact = read_number(data, position, end)
    return position


@kernel
def _product(left, right):
    """Upper and lower word of the product of two uint64."""
    upper_left, lower_left = left >> np.uint64(32), left & _LOW
    upper_right, lower_right = right >> np.uint64(32), right & _LOW
    low = lower_left * lower_right
    middle = upper_left * lower_right + (low >> np.uint64(32))
    other = lower_left * upper_right + (middle & _LOW)
    upper = upper_left * upper_right + (middle >> np.uint64(32)) + (other >> np.uint64(32))
    return upper, left * right


@kernel
def bits_of_double(digits, power, powers):
    """The bits (int64) of the double that is nearest to digits × 10^power, and whether they are decided here.

    `powers` uint64 (2 × powers from `LEAST_POWER` to `MOST_POWER`): `powers_of_five()`.

    Bounds: `powers` is read where `LEAST_POWER <= power <= MOST_POWER`, its length is checked by the caller.
    """
    if digits == 0:
        return np.int64(0), True
    if digits <= np.uint64(1 << 53) and -22 <= power <= 22:
        number = np.float64(np.int64(digits))
        return bits_of(number / _EXACT_POWERS[-power] if power < 0 else number * _EXACT_POWERS[power]), True
    return _rounded(digits, power, powers)


@kernel
def _rounded(digits, power, powers):
    """As `bits_of_double`, for digits that are not 0."""
    if power < LEAST_POWER or power > MOST_POWER:
        return np.int64(0), False
    zeros = leading_zeros(digits)
    digits <<= zeros
    place = 2 * (power - LEAST_POWER)
    upper, lower = _product(digits, powers[place])
    if upper & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _unused = _product(digits, powers[place + 1])
        lower += more
        upper += np.uint64(lower < more)
        if lower == np.uint64(0xFFFFFFFFFFFFFFFF) and (power < -27 or power > 55):
            return np.int64(0), False
    top = upper >> np.uint64(63)
    shift = top + np.uint64(9)
    mantissa = upper >> shift
    exponent = ((217706 * power) >> 16) + 1086 + np.int64(top) - np.int64(zeros)
    if exponent <= 0:
        return np.int64(0), False
    if (
        lower <= np.uint64(1)
        and -4 <= power <= 23
        and mantissa & np.uint64(3) == np.uint64(1)
        and mantissa << shift == upper
    ):
        mantissa &= ~np.uint64(1)
    mantissa += mantissa & np.uint64(1)
    mantissa >>= np.uint64(1)
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        exponent += 1
    if exponent >= 2047:
        return np.int64(0), False
    return np.int64(mantissa & np.uint64((1 << 52) - 1)) | exponent << 52, True
