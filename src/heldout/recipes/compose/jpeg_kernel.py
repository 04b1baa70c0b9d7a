"""Baseline JPEG blocks as machine code. Import it only where numba is installed.

The arithmetic is that of libjpeg: its conversion of colours, its averages of four for chroma, its
accurate integer cosine transform, division with rounding, and its treatment of edges. Files are
compared with the library's own where this is used (:mod:`heldout.recipes.compose.coded`).

A unit is 16 x 16 pixels: four blocks of Y, one of Cb, one of Cr, of 8 x 8. Units are transformed
:data:`BATCH` at a time, the same place of each block side by side, so that the processor works on
many at once. Bits are written into words of 64, the first bit highest.

Pixels are numbers of 32 bits (red lowest, alpha highest) and planes lie one after the other, all in
one dimension: what the compiler sees through, it makes fast. All lies in one file, because numba
keeps a compiled function when only another file that it calls has changed.

(ITU-T T.81, A.3 and F.1; Loeffler, Ligtenberg and Moschytz, "Practical fast 1-D DCT algorithms with
11 multiplications", ICASSP 1989.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

UNIT = 16
BATCH = 8
LANES = 6 * BATCH
WORDS = 168
"""Words that the bits of a unit fit into, whatever its pixels are."""
_PLAIN = (1 << 40) - 1
"""Indices are masked with it where the compiler is to see that they are not negative."""
_LOWEST = np.uint64(0x03F79D71B4CB0A89)  # a de Bruijn sequence: it tells the lowest bit's place
_PLACES = np.zeros(64, np.uint8)
_SIZES = np.array([value.bit_length() for value in range(4096)], np.uint8)
ZIGZAG = np.zeros(64, np.int64)
"""The place in a file of each coefficient of a block, row by row."""


def _tables() -> None:
    for bit in range(64):
        _PLACES[(((1 << bit) * int(_LOWEST)) & 0xFFFFFFFFFFFFFFFF) >> 58] = bit
    order = sorted(
        ((row, column) for row in range(8) for column in range(8)),
        key=lambda at: (sum(at), at[0] if sum(at) % 2 else at[1]),
    )
    for place, (row, column) in enumerate(order):
        ZIGZAG[row * 8 + column] = place


_tables()


@njit(cache=True)
def planes_of(pixels: Any) -> Any:
    """Y, Cb, Cr and alpha of pixels (n,), one after the other (4 n,)."""
    n = pixels.size
    out = np.empty(4 * n, np.uint8)
    luma, blue, red, alpha = out[:n], out[n : 2 * n], out[2 * n : 3 * n], out[3 * n :]
    for i in range(n):
        r, g, b = _parts(pixels[i])
        luma[i] = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
        alpha[i] = pixels[i] >> np.uint32(24)
    for i in range(n):
        r, g, b = _parts(pixels[i])
        blue[i] = (-11059 * r - 21709 * g + 32768 * b + 8421375) >> 16
        red[i] = (32768 * r - 27439 * g - 5329 * b + 8421375) >> 16
    return out


@njit(cache=True, inline="always")
def _parts(pixel: Any) -> tuple[Any, Any, Any]:
    """Red, green and blue."""
    low = np.uint32(255)
    return (
        np.int32(pixel & low),
        np.int32((pixel >> np.uint32(8)) & low),
        np.int32((pixel >> np.uint32(16)) & low),
    )


@njit(cache=True, inline="always")
def _mixed(own: Any, below: Any, alpha: Any) -> Any:
    """One channel of a pixel laid on another, as Pillow does it."""
    both = below * (np.int32(255) - alpha) + own * alpha + np.int32(128)
    return (both + (both >> np.int32(8))) >> np.int32(8)


@njit(cache=True)
def _compose(
    canvas: Any, stride: Any, rows: Any, x: Any, y: Any, planes: Any, below: Any, width: Any,
    height: Any, wide: Any, sprite: Any, colours: Any, soft: Any, across: Any, left: Any, top: Any,
) -> None:  # fmt: skip
    """Fill a canvas, planes of ``stride`` times ``rows``, with the image from ``x``, ``y`` on.

    The image has ``width`` and ``height``, its ``planes`` are ``wide``. The sprite, ``across``
    pixels wide, lies at ``left``, ``top``. Opaque pixels are its own; those that are ``soft``, rows
    and columns, are mixed in RGB, then converted.
    """
    area, whole, n = stride * rows, planes.size // 3, colours.size
    down = n // across
    x0, x1 = max(left, 0), min(left + across, width)
    y0, y1 = max(top, 0), min(top + down, height)
    opaque = 3 * n
    for c in range(3):
        for j in range(rows):
            source = (c * whole + (y + j) * wide + x) & _PLAIN
            target = (c * area + j * stride) & _PLAIN
            for i in range(stride & _PLAIN):
                canvas[target + i] = planes[source + i]
        for j in range(y0, y1):
            first = ((j - top) * across + x0 - left) & _PLAIN
            own = (c * n + first) & _PLAIN
            full = (opaque + first) & _PLAIN
            target = (c * area + (j - y) * stride + x0 - x) & _PLAIN
            for i in range((x1 - x0) & _PLAIN):
                # Without a branch: 255 where alpha is, else 0.
                mask = np.uint8(-np.uint8(sprite[full + i] == np.uint8(255)))
                canvas[target + i] = (sprite[own + i] & mask) | (canvas[target + i] & ~mask)
    for k in range(len(soft)):
        row, column = np.int64(soft[k, 0]), np.int64(soft[k, 1])
        place = row * across + column
        u, v = left + column, top + row
        if u < x0 or u >= x1 or v < y0 or v >= y1:
            continue
        alpha = np.int32(sprite[opaque + place])
        red, green, blue = _parts(colours[place])
        r, g, b = _parts(below[v * width + u])
        r, g, b = _mixed(red, r, alpha), _mixed(green, g, alpha), _mixed(blue, b, alpha)
        target = (v - y) * stride + u - x
        canvas[target] = (19595 * r + 38470 * g + 7471 * b + 32768) >> 16
        canvas[target + area] = (-11059 * r - 21709 * g + 32768 * b + 8421375) >> 16
        canvas[target + 2 * area] = (32768 * r - 27439 * g - 5329 * b + 8421375) >> 16


@njit(cache=True)
def fill(canvas: Any, stride: Any, rows: Any, across: Any, down: Any) -> None:
    """Repeat the last of ``across`` columns and of ``down`` rows to the ends of planes.

    Chroma's rows are repeated after averaging, so that it is pairs of rows where that is even.
    """
    for c in range(3):
        o = c * stride * rows
        for j in range(min(down, rows)):
            for i in range(across, stride):
                canvas[o + j * stride + i] = canvas[o + j * stride + across - 1]
        for j in range(down, rows):
            source = down - 2 + j % 2 if c and down % 2 == 0 else down - 1
            for i in range(stride):
                canvas[o + j * stride + i] = canvas[o + source * stride + i]


@njit(cache=True)
def _touched(sprite: Any, across: Any, x0: Any, y0: Any, x1: Any, y1: Any) -> Any:
    """Whether any of these pixels of a sprite is not clear."""
    first = sprite.size // 4 * 3
    for j in range(y0, y1):
        for i in range(x0, x1):
            if sprite[first + j * across + i]:
                return True
    return False


@njit(cache=True)
def _place(canvas: Any, stride: Any, area: Any, at: Any, samples: Any, lane: Any) -> None:
    """Put the six blocks of the unit at ``at`` into lanes of (64 LANES,), chroma at half size."""
    for j in range(8):
        for i in range(8):
            y = (at + j * stride + i) & _PLAIN
            o = ((j * 8 + i) * LANES + lane) & _PLAIN
            samples[o] = np.int32(canvas[y]) - 128
            samples[o + 1] = np.int32(canvas[y + 8]) - 128
            samples[o + 2] = np.int32(canvas[y + 8 * stride]) - 128
            samples[o + 3] = np.int32(canvas[y + 8 * stride + 8]) - 128
            for c in range(1, 3):
                k = (c * area + at + 2 * j * stride + 2 * i) & _PLAIN
                total = np.int32(canvas[k]) + np.int32(canvas[k + 1])
                total += np.int32(canvas[k + stride]) + np.int32(canvas[k + stride + 1])
                # Rounded down and up in turns, so that the mean is not shifted.
                samples[o + 3 + c] = ((total + 1 + (i & 1)) >> 2) - 128


@njit(cache=True, inline="always")
def _transform(samples: Any, step: Any, apart: Any, first: Any) -> None:
    """One-dimensional transforms in place: eight samples ``step`` apart, eight times ``apart``.

    ``samples``  (64 * LANES,); ``first`` of the two passes: it keeps two bits more
    """
    down = 11 if first else 15
    half = np.int32(1 << (down - 1))
    for line in range(8):
        o, n = line * apart * LANES, step * LANES
        for b in range(o, o + LANES):
            t0, t7 = samples[b] + samples[b + 7 * n], samples[b] - samples[b + 7 * n]
            t1, t6 = samples[b + n] + samples[b + 6 * n], samples[b + n] - samples[b + 6 * n]
            t2 = samples[b + 2 * n] + samples[b + 5 * n]
            t5 = samples[b + 2 * n] - samples[b + 5 * n]
            t3 = samples[b + 3 * n] + samples[b + 4 * n]
            t4 = samples[b + 3 * n] - samples[b + 4 * n]
            u0, u3, u1, u2 = t0 + t3, t0 - t3, t1 + t2, t1 - t2
            z0 = (u2 + u3) * np.int32(4433)
            z5 = (t4 + t6 + t5 + t7) * np.int32(9633) + half
            z1, z2 = (t4 + t7) * np.int32(-7373), (t5 + t6) * np.int32(-20995)
            z3 = (t4 + t6) * np.int32(-16069) + z5
            z4 = (t5 + t7) * np.int32(-3196) + z5
            if first:
                samples[b], samples[b + 4 * n] = (u0 + u1) << 2, (u0 - u1) << 2
            else:
                samples[b], samples[b + 4 * n] = (u0 + u1 + 2) >> 2, (u0 - u1 + 2) >> 2
            samples[b + 2 * n] = (z0 + u3 * np.int32(6270) + half) >> down
            samples[b + 6 * n] = (z0 - u2 * np.int32(15137) + half) >> down
            samples[b + 7 * n] = (t4 * np.int32(2446) + z1 + z3) >> down
            samples[b + 5 * n] = (t5 * np.int32(16819) + z2 + z4) >> down
            samples[b + 3 * n] = (t6 * np.int32(25172) + z2 + z3) >> down
            samples[b + n] = (t7 * np.int32(12299) + z1 + z4) >> down


@njit(cache=True)
def _coefficients(samples: Any, half: Any, inverse: Any, values: Any, present: Any) -> None:
    """Transform the samples of a batch and divide with rounding.

    ``half`` and ``inverse`` (64 LANES,): half of the divisor plus a half, and 1 / divisor. The
    coefficients go to ``values`` (64 LANES,), those of a block together in zigzag order;
    ``present`` (LANES,) has bits for those that are not 0.
    """
    _transform(samples, 1, 8, True)
    _transform(samples, 8, 1, False)
    for b in range(LANES):
        present[b] = 0
    for p in range(64):
        place = ZIGZAG[p]
        o, target = (p * LANES) & _PLAIN, (place * LANES) & _PLAIN
        bit = np.uint64(place)
        for b in range(LANES):
            value = samples[o + b]
            size = np.int32((np.float32(abs(value)) + half[o + b]) * inverse[o + b])
            values[target + b] = -size if value < 0 else size
            present[b] |= np.uint64(size != 0) << bit


@njit(cache=True, inline="always")
def _put(words: Any, at: Any, held: Any, count: Any, value: Any, size: Any) -> tuple[Any, Any, Any]:
    """Write the lowest ``size`` bits of a value that has no others, 1 to 63."""
    free = 64 - count
    if size < free:
        held = (held << np.uint64(size)) | value
        count += size
    else:
        count = size - free
        words[at] = (held << np.uint64(free)) | (value >> np.uint64(count))
        held = value
        at += 1
    return at, held, count


@njit(cache=True)
def _copy(
    words: Any, at: Any, held: Any, count: Any, source: Any, start: Any, end: Any
) -> tuple[Any, Any, Any]:
    """Write bits ``start`` to ``end`` of other words, which one more word follows."""
    low, up = np.uint64(start & 63), np.uint64(count)
    place = start >> 6
    # Shifted in two steps, because a shift by 64 is not defined.
    for k in range((end - start) >> 6):
        word = (source[place + k] << low) | (
            (source[place + k + 1] >> np.uint64(1)) >> (np.uint64(63) - low)
        )
        words[at + k] = ((held << np.uint64(1)) << (np.uint64(63) - up)) | (word >> up)
        held = word
    steps = (end - start) >> 6
    at += steps
    place += steps
    left = (end - start) & 63
    if left:
        word = (source[place] << low) | (
            (source[place + 1] >> np.uint64(1)) >> (np.uint64(63) - low)
        )
        at, held, count = _put(words, at, held, count, word >> np.uint64(64 - left), left)
    return at, held, count


@njit(cache=True, inline="always")
def _put_value(
    words: Any, at: Any, held: Any, count: Any, value: Any, run: Any, codes: Any, kind: Any
) -> tuple[Any, Any, Any]:
    """Write a value after a run of zeros: the code of both sizes, then its own bits."""
    size = np.int64(_SIZES[abs(value)])
    code = codes[kind + (run << 4) + size]
    bits = np.uint64(value + (value >> 63)) & ((np.uint64(1) << np.uint64(size)) - np.uint64(1))
    bits |= (code >> np.uint64(8)) << np.uint64(size)
    return _put(words, at, held, count, bits, np.int64(code & np.uint64(255)) + size)


@njit(cache=True)
def _put_block(
    words: Any, at: Any, held: Any, count: Any, values: Any, present: Any, lane: Any,
    codes: Any, kind: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Write the rest of a block after its mean: runs of zeros, and what ends them."""
    left = present & ~np.uint64(1)
    last = np.int64(0)
    while left:
        lowest = left & (~left + np.uint64(1))
        place = np.int64(_PLACES[(lowest * _LOWEST) >> np.uint64(58)])
        left ^= lowest
        run = place - last - 1
        last = place
        while run > 15:
            code = codes[kind + 0xF0]
            at, held, count = _put(
                words, at, held, count, code >> np.uint64(8), np.int64(code & np.uint64(255))
            )
            run -= 16
        value = np.int64(values[place * LANES + lane])
        at, held, count = _put_value(words, at, held, count, value, run, codes, kind)
    if last < 63:
        code = codes[kind]
        at, held, count = _put(
            words, at, held, count, code >> np.uint64(8), np.int64(code & np.uint64(255))
        )
    return at, held, count


@njit(cache=True)
def _put_unit(
    words: Any, at: Any, held: Any, count: Any, values: Any, present: Any, lane: Any,
    means: Any, across: Any, down: Any, codes: Any, marks: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Write a unit. ``means`` are those before it, of Y, Cb and Cr, and become its own.

    ``across``  pixels of the image from its corner on, and ``down``: where that is 8 or less,
                there are blocks past the image, which repeat a mean
    ``codes``   (4 * 256,) code and, in the lowest byte, its length: means and rest of Y, of chroma
    ``marks``   (6,) bits where the means of Y, Cb and Cr begin and end
    """
    for block in range(6):
        channel, kind = (0, 0) if block < 4 else (block - 3, 512)
        mean, bits = np.int64(values[lane + block]), present[lane + block]
        if (block == 1 or block == 3) and across <= 8:
            mean, bits = means[0], np.uint64(0)
        if (block == 2 or block == 3) and down <= 8:
            mean, bits = means[0], np.uint64(0)
        if block == 0 or block > 3:
            marks[2 * channel] = at * 64 + count
        at, held, count = _put_value(words, at, held, count, mean - means[channel], 0, codes, kind)
        if block == 0 or block > 3:
            marks[2 * channel + 1] = at * 64 + count
        means[channel] = mean
        at, held, count = _put_block(
            words, at, held, count, values, bits, lane + block, codes, kind + 256
        )
    return at, held, count


@njit(cache=True)
def coded_background(
    planes: Any, wide: Any, width: Any, height: Any, half: Any, inverse: Any, codes: Any,
    words: Any, marks: Any, firsts: Any, means: Any,
) -> Any:  # fmt: skip
    """Encode an image whole; the number of its bits.

    ``planes``  of whole units, ``wide`` pixels in a row, filled up (:func:`fill`)
    ``marks``   (units + 1, 6) as :func:`_put_unit`; ``firsts`` (units,) the first mean of Y;
                ``means`` (units, 3) the last ones of Y, Cb and Cr
    """
    columns = wide // UNIT
    area = planes.size // 3
    total = area // (UNIT * UNIT)
    samples = np.zeros(64 * LANES, np.int32)
    values = np.zeros(64 * LANES, np.int32)
    present = np.zeros(LANES, np.uint64)
    before = np.zeros(3, np.int64)
    at, held, count = 0, np.uint64(0), 0
    for first in range(0, total, BATCH):
        slots = min(BATCH, total - first)
        for slot in range(slots):
            row, column = divmod(first + slot, columns)
            _place(planes, wide, area, (row * wide + column) * UNIT, samples, 6 * slot)
        _coefficients(samples, half, inverse, values, present)
        for slot in range(slots):
            unit = first + slot
            row, column = divmod(unit, columns)
            firsts[unit] = values[6 * slot]
            at, held, count = _put_unit(
                words, at, held, count, values, present, 6 * slot, before,
                width - column * UNIT, height - row * UNIT, codes, marks[unit],
            )  # fmt: skip
            means[unit] = before
    marks[total, 0] = at * 64 + count
    words[at] = held << np.uint64(64 - count) if count else np.uint64(0)
    words[at + 1] = 0
    return at * 64 + count


@njit(cache=True)
def _unchanged(
    words: Any, at: Any, held: Any, count: Any, first: Any, after: Any, before: Any,
    source: Any, marks: Any, firsts: Any, means: Any, codes: Any,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """Write units ``first`` to ``after`` of the background; ``before`` are the means before them."""
    if first > 0:
        for c in range(3):
            mean = means[first, c] if c else firsts[first]
            at, held, count = _put_value(
                words, at, held, count, mean - before[c], 0, codes, 512 if c else 0
            )
            end = marks[first, 2 * c + 2] if c < 2 else marks[first + 1, 0]
            at, held, count = _copy(words, at, held, count, source, marks[first, 2 * c + 1], end)
        first += 1
    return _copy(words, at, held, count, source, marks[first, 0], marks[after, 0])


@njit(cache=True)
def coded_image(
    planes: Any, wide: Any, width: Any, height: Any, half: Any, inverse: Any, codes: Any,
    source: Any, marks: Any, firsts: Any, means: Any, below: Any, sprite: Any, colours: Any,
    soft: Any, across: Any, left: Any, top: Any, canvas: Any, words: Any,
) -> Any:  # fmt: skip
    """Encode a background with a sprite on it; the number of bits written to ``words``.

    ``planes``, ``marks``, ``firsts``, ``means``  of the background, as :func:`coded_background` has
    them; ``source`` its bits; ``below`` its pixels
    ``sprite``  planes of ``colours``, ``across`` pixels wide, with its corner at ``left``, ``top``;
                ``soft`` (n, 2) rows and columns of pixels neither clear nor opaque
    ``canvas``  room for as much as ``planes``
    """
    columns, total = wide // UNIT, planes.size // (3 * UNIT * UNIT)
    x0, x1 = max(left, 0), min(left + across, width)
    y0, y1 = max(top, 0), min(top + colours.size // across, height)
    at, held, count = 0, np.uint64(0), 0
    done, slots = 0, 0
    before = np.zeros(3, np.int64)
    if x1 > x0 and y1 > y0:
        samples = np.zeros(64 * LANES, np.int32)
        values = np.zeros(64 * LANES, np.int32)
        present = np.zeros(LANES, np.uint64)
        spare = np.zeros(6, np.int64)
        chosen = np.zeros(BATCH, np.int64)
        x, y = x0 // UNIT * UNIT, y0 // UNIT * UNIT
        stride, rows = -(-x1 // UNIT) * UNIT - x, -(-y1 // UNIT) * UNIT - y
        area = stride * rows
        _compose(
            canvas, stride, rows, x, y, planes, below, width, height, wide, sprite, colours, soft,
            across, left, top,
        )  # fmt: skip
        fill(canvas, stride, rows, min(stride, width - x), min(rows, height - y))
        units = area // (UNIT * UNIT)
        for step in range(units):
            row, column = divmod(step, stride // UNIT)
            u, v = column * UNIT, row * UNIT
            if _touched(
                sprite, across, max(x + u, x0) - left, max(y + v, y0) - top,
                min(x + u + UNIT, x1) - left, min(y + v + UNIT, y1) - top,
            ):  # fmt: skip
                _place(canvas, stride, area, v * stride + u, samples, 6 * slots)
                chosen[slots] = (y // UNIT + row) * columns + x // UNIT + column
                slots += 1
            if slots < BATCH and step + 1 < units:
                continue
            _coefficients(samples, half, inverse, values, present)
            for slot in range(slots):
                number = chosen[slot]
                if number > done:
                    at, held, count = _unchanged(
                        words, at, held, count, done, number, before, source, marks, firsts, means,
                        codes,
                    )  # fmt: skip
                    before[:] = means[number - 1]
                row, column = divmod(number, columns)
                at, held, count = _put_unit(
                    words, at, held, count, values, present, 6 * slot, before,
                    width - column * UNIT, height - row * UNIT, codes, spare,
                )  # fmt: skip
                done = number + 1
            slots = 0
    if done < total:
        at, held, count = _unchanged(
            words, at, held, count, done, total, before, source, marks, firsts, means, codes
        )
    words[at] = held << np.uint64(64 - count) if count else np.uint64(0)
    return at * 64 + count
