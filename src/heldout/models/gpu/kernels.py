"""Triton kernels: chroma to colour as libjpeg does it, and Pillow's resize, over images of any sizes.

One launch serves a whole batch. Images lie in flat buffers; a table of int64 rows, one per image,
says where (the columns are named in :mod:`heldout.models.gpu.resize`).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _chroma(base, start, pitch, rows, columns, y, x, across, down, inside):  # type: ignore[no-untyped-def]
    """Chroma of full size: three parts of the nearest sample, one of the next, along each axis."""
    cy, cx = y // down, x // across
    ny = tl.where(down == 2, tl.minimum(tl.maximum(cy + (y % 2) * 2 - 1, 0), rows - 1), cy)
    nx = tl.where(across == 2, tl.minimum(tl.maximum(cx + (x % 2) * 2 - 1, 0), columns - 1), cx)
    here = base + start
    near = 3 * tl.load(here + cy * pitch + cx, mask=inside, other=0).to(tl.int32)
    near += tl.load(here + ny * pitch + cx, mask=inside, other=0).to(tl.int32)
    next_ = 3 * tl.load(here + cy * pitch + nx, mask=inside, other=0).to(tl.int32)
    next_ += tl.load(here + ny * pitch + nx, mask=inside, other=0).to(tl.int32)
    # libjpeg rounds by turns up and down, so that no drift is left; one rule a sampling.
    both = tl.where(x % 2 == 0, 8, 7)
    odd = tl.where(across == 2, x % 2, y % 2)
    bias = tl.where((across == 2) & (down == 2), both, tl.where(odd == 0, 4, 8))
    return (3 * near + next_ + bias) >> 4


@triton.jit  # type: ignore[untyped-decorator]
def colour_kernel(planes, rgb, table, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """YCbCr planes, subsampled or not, to RGB planes of full size; program (image, block)."""
    row = table + tl.program_id(0).to(tl.int64) * COLUMNS
    luma, blue, red = tl.load(row + 0), tl.load(row + 1), tl.load(row + 2)
    pitch, chroma_pitch = tl.load(row + 3), tl.load(row + 4)
    height, width = tl.load(row + 5), tl.load(row + 6)
    across, down = tl.load(row + 7).to(tl.int32), tl.load(row + 8).to(tl.int32)
    target = tl.load(row + 9)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < height * width
    y, x = (at // width).to(tl.int32), (at % width).to(tl.int32)
    value = tl.load(planes + luma + y * pitch + x, mask=inside, other=0).to(tl.int32)
    grey = across == 0
    across, down = tl.maximum(across, 1), tl.maximum(down, 1)
    rows, columns = (height + down - 1) // down, (width + across - 1) // across
    coloured = inside & (grey == 0)
    cb = _chroma(planes, blue, chroma_pitch, rows, columns, y, x, across, down, coloured) - 128
    cr = _chroma(planes, red, chroma_pitch, rows, columns, y, x, across, down, coloured) - 128
    cb, cr = tl.where(grey, 0, cb), tl.where(grey, 0, cr)
    r = value + ((91881 * cr + 32768) >> 16)
    g = value + ((-22554 * cb - 46802 * cr + 32768) >> 16)
    b = value + ((116130 * cb + 32768) >> 16)
    out = rgb + target + at
    area = height * width
    tl.store(out, tl.minimum(tl.maximum(r, 0), 255).to(tl.uint8), mask=inside)
    tl.store(out + area, tl.minimum(tl.maximum(g, 0), 255).to(tl.uint8), mask=inside)
    tl.store(out + 2 * area, tl.minimum(tl.maximum(b, 0), 255).to(tl.uint8), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def first_pass_kernel(  # type: ignore[no-untyped-def]
    rgb,
    between,
    table,
    taps,
    taps_step,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Along the first axis, for the lines that the second pass reads; program (image, lines, channel)."""
    row = table + tl.program_id(0).to(tl.int64) * COLUMNS
    source, plane = tl.load(row + 9), tl.load(row + 10)
    line_step, step = tl.load(row + 11), tl.load(row + 12)
    line_low, lines, size = tl.load(row + 13), tl.load(row + 14), tl.load(row + 15)
    table_at, k, n = tl.load(row + 16), tl.load(row + 17), tl.load(row + 18)
    target = tl.load(row + 22)
    channel = tl.program_id(2)
    line = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    if tl.program_id(1) * ROWS < lines:
        used = column < n
        inside = (line < lines)[:, None] & used[None, :]
        first = tl.load(taps + table_at + column, mask=used, other=0)
        start = rgb + source + channel * plane + ((line + line_low) * line_step)[:, None]
        total = tl.zeros((ROWS, WIDE), tl.int32) + (1 << 21)
        for tap in range(k.to(tl.int32)):
            weight = tl.load(taps + table_at + taps_step * (tap + 1) + column, mask=used, other=0)
            position = tl.minimum(first + tap, size - 1) * step
            pixel = tl.load(start + position[None, :], mask=inside, other=0).to(tl.int32)
            total += pixel * weight[None, :]
        value = tl.minimum(tl.maximum(total >> 22, 0), 255).to(tl.uint8)
        out = between + target + (channel * lines + line)[:, None] * n + column[None, :]
        tl.store(out, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def second_pass_kernel(  # type: ignore[no-untyped-def]
    between,
    pixels,
    table,
    taps,
    taps_step,
    down_step,
    across_step,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    WIDE: tl.constexpr,
):
    """Along the second axis, into the batch of pixels; program (image, outputs, channel)."""
    row = table + tl.program_id(0).to(tl.int64) * COLUMNS
    lines, n = tl.load(row + 14), tl.load(row + 18)
    line_low = tl.load(row + 13).to(tl.int32)
    table_at, k, m = tl.load(row + 19), tl.load(row + 20), tl.load(row + 21)
    source, target = tl.load(row + 22), tl.load(row + 23)
    turned = tl.load(row + 12) != 1  # the first pass ran down the image
    channel = tl.program_id(2)
    output = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)
    if tl.program_id(1) * ROWS < m:
        used = output < m
        inside = used[:, None] & (column < n)[None, :]
        first = tl.load(taps + table_at + output, mask=used, other=0) - line_low
        start = between + source + channel * lines * n + column[None, :]
        total = tl.zeros((ROWS, WIDE), tl.int32) + (1 << 21)
        for tap in range(k.to(tl.int32)):
            weight = tl.load(taps + table_at + taps_step * (tap + 1) + output, mask=used, other=0)
            position = tl.minimum(first + tap, lines - 1) * n
            pixel = tl.load(start + position[:, None], mask=inside, other=0).to(tl.int32)
            total += pixel * weight[:, None]
        value = tl.minimum(tl.maximum(total >> 22, 0), 255).to(tl.uint8)
        output_step = tl.where(turned, across_step, down_step)
        column_step = tl.where(turned, down_step, across_step)
        out = (
            pixels
            + target
            + channel
            + output[:, None] * output_step
            + column[None, :] * column_step
        )
        tl.store(out, value, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _weight(x, BICUBIC: tl.constexpr):  # type: ignore[no-untyped-def]
    """Pillow's filter functions: bicubic, or bilinear."""
    away = tl.abs(x)
    if BICUBIC:
        near = (1.5 * away - 2.5) * away * away + 1.0
        far = (((away - 5.0) * away + 8.0) * away - 4.0) * -0.5
        return tl.where(away < 1.0, near, tl.where(away < 2.0, far, 0.0))
    return tl.where(away < 1.0, 1.0 - away, 0.0)


@triton.jit  # type: ignore[untyped-decorator]
def taps_kernel(  # type: ignore[no-untyped-def]
    table,
    taps,
    each,
    outputs,
    support,
    COLUMNS: tl.constexpr,
    WIDE: tl.constexpr,
    BICUBIC: tl.constexpr,
):
    """First positions and weights of one axis; program (image, pass). In double precision, step by
    step as :func:`heldout.data.images.resize_weights.axis_taps`; to be run without fused operations."""
    n = tl.num_programs(0)
    image, axis = tl.program_id(0), tl.program_id(1)
    row = table + image.to(tl.int64) * COLUMNS
    k = tl.load(row + 17 + 3 * axis).to(tl.int32)
    size = tl.load(row + 24 + 5 * axis).to(tl.float64)
    target = tl.load(row + 25 + 5 * axis).to(tl.float64)
    start = tl.load(row + 26 + 5 * axis).to(tl.float64)
    low, high = tl.load(row + 27 + 5 * axis), tl.load(row + 28 + 5 * axis)
    out = tl.arange(0, WIDE)
    wanted = start + out.to(tl.float64)
    inside = (wanted >= 0.0) & (wanted < target)
    scale = size / target
    stretch = tl.maximum(scale, 1.0)
    reach = support * stretch
    centre = (wanted + 0.5) * scale
    begin = tl.maximum((centre - reach + 0.5).to(tl.int64), 0)
    end = tl.minimum((centre + reach + 0.5).to(tl.int64), size.to(tl.int64))
    inverse = 1.0 / stretch
    first = begin.to(tl.float64)
    total = tl.zeros((WIDE,), tl.float64)
    for tap in range(k):
        value = _weight((first + tap - centre + 0.5) * inverse, BICUBIC)
        total += tl.where(tap < end - begin, value, 0.0)
    whole = tl.where(total != 0.0, 1.0 / tl.where(total == 0.0, 1.0, total), 1.0)
    target_row = taps + (axis * n + image).to(tl.int64) * each + out
    used = out < outputs
    position = tl.minimum(tl.maximum(begin, low), high - 1)
    tl.store(target_row, position.to(tl.int32), mask=used)
    for tap in range(k):
        value = _weight((first + tap - centre + 0.5) * inverse, BICUBIC)
        value = tl.where((tap < end - begin) & inside, value, 0.0) * whole
        scaled = value * 4194304.0 + tl.where(value < 0.0, -0.5, 0.5)
        tl.store(target_row + outputs * (tap + 1), scaled.to(tl.int32), mask=used)
