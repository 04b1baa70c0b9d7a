"""Odd and hostile images, made here, each with what must come of it.

``CASES`` maps a name to the bytes and to one of: the exact pixels, uint8 (height, width, 3); the
word ``pillow`` (whatever ``convert("RGB")`` gives: lossy formats); or the trouble that it is.
"""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Iterable

import numpy as np
from PIL import Image

Expected = np.ndarray | str
HEIGHT, WIDTH = 30, 40

_Y, _X = np.mgrid[0:HEIGHT, 0:WIDTH]
PIXELS = np.stack([_X * 6, _Y * 8, (_X * _Y) % 256], axis=-1).astype(np.uint8)
GREY = ((_X * 5 + _Y * 3) % 256).astype(np.uint8)
DEEP = (GREY.astype(np.uint16) << 8) | GREY[::-1]  # the lower byte must not matter
BITS = ((_X + _Y) % 2).astype(np.uint8)


def triple(grey: np.ndarray) -> np.ndarray:
    return np.repeat(grey[..., None], 3, axis=-1)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def picture(mode: str = "RGB") -> Image.Image:
    return Image.fromarray(PIXELS).convert(mode)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(
    rows: Iterable[bytes],
    *,
    bits: int,
    colour: int,
    size: tuple[int, int] = (WIDTH, HEIGHT),
    interlaced: bool = False,
    before: bytes = b"",
) -> bytes:
    """A PNG of raw rows, packed as they stream by, so that a bomb costs nothing to make."""
    packer = zlib.compressobj(1)
    body = b"".join([packer.compress(b"\0" + row) for row in rows]) + packer.flush()
    head = struct.pack(">IIBBBBB", *size, bits, colour, 0, 0, int(interlaced))
    return b"".join(
        [b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", head), before, chunk(b"IDAT", body), END_OF_PNG]
    )


END_OF_PNG = chunk(b"IEND", b"")


def interlaced_png() -> bytes:
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]
    passes.append((0, 1, 1, 2))
    rows = [row.tobytes() for x, y, dx, dy in passes for row in PIXELS[y::dy, x::dx]]
    return png(rows, bits=8, colour=2, interlaced=True)


def black_png(size: tuple[int, int], *, colour: int = 2) -> bytes:
    row = bytes(size[0] * {0: 1, 2: 3, 6: 4}[colour])
    return png((row for _ in range(size[1])), bits=8, colour=colour, size=size)


def packed(values: np.ndarray, bits: int) -> list[bytes]:
    """Rows of values of fewer than 8 bits, the first in the highest bits."""
    wide = (values[..., None] >> np.arange(bits - 1, -1, -1)) & 1
    return [np.packbits(row.ravel()).tobytes() for row in wide]


def tiff(
    pixels: bytes, entries: dict[int, tuple[int, int]], *, order: str = "<", following: int = 0
) -> bytes:
    """A TIFF of one strip; ``entries`` are tags with their type and one value."""
    size = len(pixels)
    tags = {256: (3, WIDTH), 257: (3, HEIGHT), 259: (3, 1), 273: (4, 8), 278: (3, HEIGHT)}
    tags |= {277: (3, 1), 279: (4, size)} | entries
    rows = []
    for tag, (kind, value) in sorted(tags.items()):
        cell = struct.pack(order + ("Hxx" if kind == 3 else "I"), value)
        rows.append(struct.pack(order + "HHI", tag, kind, 1) + cell)
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8 + size)
    count = struct.pack(order + "H", len(rows))
    return head + pixels + count + b"".join(rows) + struct.pack(order + "I", following)


def bmp(pixels: bytes, *, bits: int, size: tuple[int, int], kind: int = 0, palette: bytes) -> bytes:
    start = 54 + len(palette)
    head = struct.pack("<IiiHHIIiiII", 40, *size, 1, bits, kind, len(pixels), 0, 0, 256, 0)
    return struct.pack("<2sIHHI", b"BM", start + len(pixels), 0, 0, start) + head + palette + pixels


def exif(orientation: int) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data


def with_segment(jpeg: bytes, marker: int, data: bytes) -> bytes:
    return jpeg[:2] + segment(marker, data) + jpeg[2:]


def box(kind: bytes, brands: bytes) -> bytes:
    return struct.pack(">I", 16 + len(brands)) + b"ftyp" + kind + bytes(4) + brands + bytes(200)


def many_scans() -> bytes:
    """A progressive JPEG of 22 megapixels that is gone over a thousand times: small, and slow."""
    data = saved(Image.new("RGB", (5000, 4500)), "JPEG", progressive=True)
    scan = data[data.rfind(b"\xff\xda") : -2]
    return data[:-2] + scan * 1000 + data[-2:]


def riff(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def webp_canvas(width: int, height: int) -> bytes:
    """An animated WebP that declares a canvas of any size for a small frame."""

    def less_one(*numbers: int) -> bytes:
        return b"".join((n - 1).to_bytes(3, "little") for n in numbers)

    still = saved(picture(), "WEBP", lossless=True)[12:]
    frame = bytes(6) + less_one(WIDTH, HEIGHT) + bytes(4) + still
    canvas = riff(b"VP8X", b"\x02\0\0\0" + less_one(width, height))
    return riff(b"RIFF", b"WEBP" + canvas + riff(b"ANIM", bytes(6)) + riff(b"ANMF", frame))


def gif_canvas(width: int, height: int, *, disposal: int = 0) -> bytes:
    """A GIF whose screen and first frame are of any size, with two pixels of data."""
    screen = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    control = b"\x21\xf9\x04" + bytes([disposal << 2, 0, 0, 0, 0])
    return screen + control + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + GIF_TAIL


GIF_TAIL = b"\x02\x02\x44\x01\x00;"

ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAUDBAQEAwUEBAQFBQUGBwwIBwcHBw8LCwkMEQ8SEhEPERETFhwXExQaFRER"
    "GCEYGh0dHx8fExciJCIeJBweHx7/2wBDAQUFBQcGBw4ICA4eFBEUHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4e"
    "Hh4eHh4eHh4eHh4eHh4eHh4eHh7/yQARCAAQABgDAREAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwD/ANgU"
    "3emRkXGD90/eFf8AF/ezJ61WLv2ueKXzus7w4E0yVz/V8u3NmeY91gZHNSnrC7N06tAuAWiOvgjUnhF8+N+UyaFKj9BB"
    "wf/Z"
)
"""A smooth picture of 24 x 16 pixels, arithmetic-coded."""


def png_cases() -> dict[str, tuple[bytes, Expected]]:
    alpha = Image.fromarray(GREY)
    clear = picture()
    clear.putalpha(alpha)
    light = Image.merge("LA", (alpha, alpha.rotate(180)))
    table = picture().quantize(200)
    colours = np.asarray(table.convert("RGB"))
    deep = DEEP.astype(">u2")
    two = (GREY >> 6).astype(np.uint8)
    first, second = picture(), picture().rotate(180)
    plain = saved(picture(), "PNG")
    text = zlib.compress(bytes(40_000_000), 9)
    return {
        "png": (plain, PIXELS),
        "png, alpha dropped": (saved(clear, "PNG"), PIXELS),
        "png, grey and alpha": (saved(light, "PNG"), triple(GREY)),
        "png, grey": (saved(alpha, "PNG"), triple(GREY)),
        "png, 1 bit": (png(packed(BITS, 1), bits=1, colour=0), triple(BITS * 255)),
        "png, 2 bits": (png(packed(two, 2), bits=2, colour=0), triple(two * 85)),
        "png, 4 bits": (png(packed(GREY >> 4, 4), bits=4, colour=0), triple((GREY >> 4) * 17)),
        "png, palette": (saved(table, "PNG"), colours),
        "png, palette of alphas": (saved(table, "PNG", transparency=bytes(range(200))), colours),
        "png, palette with one clear": (saved(table, "PNG", transparency=3), colours),
        "png, one clear colour": (saved(picture(), "PNG", transparency=(0, 0, 0)), PIXELS),
        "png, interlaced": (interlaced_png(), PIXELS),
        "png, 16 bits grey": (png([r.tobytes() for r in deep], bits=16, colour=0), triple(GREY)),
        "png, 16 bits colour": (
            png([triple(r).astype(">u2").tobytes() for r in DEEP], bits=16, colour=2),
            triple(GREY),
        ),
        "png, 16 bits with alpha": (
            png([np.stack([r, r], -1).astype(">u2").tobytes() for r in DEEP], bits=16, colour=4),
            triple(GREY),
        ),
        "png, animated": (saved(first, "PNG", save_all=True, append_images=[second]), PIXELS),
        "png, colour profile": (saved(picture(), "PNG", icc_profile=b"not a profile"), PIXELS),
        "png, gamma": (
            plain[:33] + chunk(b"gAMA", struct.pack(">I", 100_000)) + plain[33:],
            PIXELS,
        ),
        "png, garbage behind": (plain + bytes(range(256)) * 40, PIXELS),
        "png, one pixel": (
            saved(Image.new("RGB", (1, 1), (1, 2, 3)), "PNG"),
            np.array([[[1, 2, 3]]]),
        ),
        "png, half of it": (plain[: len(plain) // 2], "truncated"),
        "png, signature only": (plain[:8], "broken"),
        "png, bad checksum": (plain[:29] + bytes(4) + plain[33:], "broken"),
        "png, unknown colour type": (png([], bits=8, colour=5), "broken"),
        "png, no palette": (png([bytes(WIDTH)] * HEIGHT, bits=8, colour=3), "pillow"),
        "png, no pixels": (png([], bits=8, colour=2, size=(0, 10)), "broken"),
        "png, declares too much": (png([], bits=8, colour=2, size=(200_000, 200_000)), "too large"),
        "png, declares all": (png([], bits=1, colour=0, size=(2**31 - 1, 2**31 - 1)), "too large"),
        "png, bomb in its text": (
            plain[:33] + chunk(b"zTXt", b"a\0\0" + text) + plain[33:],
            "broken",
        ),
        "png, bomb in its profile": (
            plain[:33] + chunk(b"iCCP", b"a\0\0" + text) + plain[33:],
            "broken",
        ),
    }


def jpeg_cases() -> dict[str, tuple[bytes, Expected]]:
    plain = saved(picture(), "JPEG")
    cmyk = saved(picture("CMYK"), "JPEG")
    adobe = cmyk.index(b"\xff\xee")
    frame = plain.index(b"\xff\xc0")
    scan = plain.index(b"\xff\xda")
    tables = plain.index(b"\xff\xdb")
    restarts = saved(picture(), "JPEG", restart_marker_blocks=1)
    pair = saved(picture(), "MPO", save_all=True, append_images=[picture().rotate(180)])
    damaged = bytearray(plain)
    damaged[scan + 40 : scan + 44] = b"\x12\x34\x56\x78"
    return {
        "jpeg": (plain, "pillow"),
        "jpeg, grey": (saved(picture("L"), "JPEG"), "pillow"),
        "jpeg, progressive": (saved(picture(), "JPEG", progressive=True), "pillow"),
        "jpeg, colours in full": (saved(picture(), "JPEG", subsampling=0), "pillow"),
        "jpeg, restarts": (restarts, "pillow"),
        "jpeg, arithmetic": (ARITHMETIC, "pillow"),
        "jpeg, cmyk": (cmyk, "pillow"),
        "jpeg, cmyk without adobe": (cmyk[:adobe] + cmyk[adobe + 16 :], "pillow"),
        "jpeg, ycck": (cmyk[: adobe + 15] + b"\x02" + cmyk[adobe + 16 :], "pillow"),
        "jpeg, adobe rgb": (with_segment(plain, 0xEE, b"Adobe\0\x64" + bytes(5)), "pillow"),
        "jpeg, turned": (saved(picture(), "JPEG", exif=exif(6)), "pillow"),
        "jpeg, orientation 99": (saved(picture(), "JPEG", exif=exif(99)), "pillow"),
        "jpeg, broken exif": (
            with_segment(plain, 0xE1, b"Exif\0\0MM\0*\xff\xff\xff\xff"),
            "pillow",
        ),
        "jpeg, no exif in exif": (with_segment(plain, 0xE1, b"Exif\0\0" + b"\x07" * 99), "pillow"),
        "jpeg, cut exif": (with_segment(plain, 0xE1, exif(6)[:20]), "pillow"),
        "jpeg, colour profile": (saved(picture(), "JPEG", icc_profile=b"no profile"), "pillow"),
        "jpeg, garbage behind": (plain + b"garbage" * 1000, "pillow"),
        "jpeg, page behind": (plain + b"<html></html>", "pillow"),
        "jpeg, long comments": (with_segment(plain, 0xFE, b"x" * 65_000), "pillow"),
        "jpeg, fill bytes": (plain[:2] + b"\xff" * 50 + plain[2:], "pillow"),
        "jpeg, two pictures": (pair, "pillow"),
        "jpeg, broken index": (with_segment(plain, 0xE2, b"MPF\0II*\0\x08\0\0\0\x01\0"), "pillow"),
        "jpeg, damaged scan": (bytes(damaged), "pillow"),
        "jpeg, half of it": (plain[: len(plain) // 2], "truncated"),
        "jpeg, end marker lost": (plain[:-2], "truncated"),
        "jpeg, three bytes": (plain[:3], "broken"),
        "jpeg, header only": (plain[:scan], "broken"),
        "jpeg, no tables": (plain[:tables] + plain[tables + 138 :], "broken"),
        "jpeg, 12 bits": (plain[: frame + 4] + b"\x0c" + plain[frame + 5 :], "broken"),
        "jpeg, lossless": (plain[: frame + 1] + b"\xc3" + plain[frame + 2 :], "broken"),
        "jpeg, no height": (plain[: frame + 5] + b"\0\0" + plain[frame + 7 :], "broken"),
        "jpeg, declares too much": (
            plain[: frame + 5] + b"\xff" * 4 + plain[frame + 9 :],
            "too large",
        ),
        "jpeg, a thousand scans": (many_scans(), "too large"),
    }


def other_cases() -> dict[str, tuple[bytes, Expected]]:
    table = picture().quantize(200)
    frames = [table, table.rotate(180)]
    colours = np.asarray(table.convert("RGB"))
    gif = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    webp = saved(picture(), "WEBP", lossless=True)
    clear = picture()
    clear.putalpha(200)
    greys = b"".join(bytes([v, v, v, 0]) for v in range(256))
    runs = b"".join(b"".join(bytes([1, v]) for v in row) + b"\0\0" for row in GREY[::-1]) + b"\0\1"
    grey = {258: (3, 16), 262: (3, 1)}
    little, big = DEEP.tobytes(), DEEP.astype(">u2").tobytes()
    twelve = b"".join(packed(DEEP >> 4, 12))
    loop = tiff(little, grey, following=8 + len(little))
    two = saved(picture(), "TIFF", save_all=True, append_images=[picture().rotate(180)])
    text = " ".join(str(v) for v in PIXELS.ravel())
    deep_pgm = b"P5 40 30 65535\n" + big
    return {
        "gif": (saved(table, "GIF"), colours),
        "gif, animated": (gif, colours),
        "gif, transparent": (saved(table, "GIF", transparency=0), colours),
        "gif, half of it": (gif[:1000], "truncated"),
        "gif, declares too much": (gif_canvas(65_535, 65_535), "too large"),
        "gif, disposes too much": (gif_canvas(65_535, 65_535, disposal=2), "too large"),
        "gif, little data": (gif_canvas(50, 50), "truncated"),
        "bmp": (saved(picture(), "BMP"), PIXELS),
        "bmp, 1 bit": (saved(Image.fromarray(BITS * 255).convert("1"), "BMP"), triple(BITS * 255)),
        "bmp, run lengths": (
            bmp(runs, bits=8, size=(WIDTH, HEIGHT), kind=1, palette=greys),
            triple(GREY),
        ),
        "bmp, from the top": (
            bmp(GREY.tobytes(), bits=8, size=(WIDTH, -HEIGHT), palette=greys),
            triple(GREY),
        ),
        "bmp, declares too much": (
            bmp(b"", bits=8, size=(2**20, 2**20), palette=greys),
            "too large",
        ),
        "bmp, slow to read": (
            bmp(b"\0\1", bits=8, size=(3000, 3000), kind=1, palette=greys),
            "too large",
        ),
        "webp, lossless": (webp, PIXELS),
        "webp, lossy": (saved(picture(), "WEBP"), "pillow"),
        "webp, alpha dropped": (saved(clear, "WEBP", lossless=True, exact=True), PIXELS),
        "webp, animated": (
            saved(picture(), "WEBP", save_all=True, append_images=[picture("L")], lossless=True),
            PIXELS,
        ),
        "webp, half of it": (webp[: len(webp) // 2], "broken"),
        "webp, declares too much": (webp_canvas(16_383, 16_383), "too large"),
        "webp, declares much": (webp_canvas(5_000, 4_000), "too large"),
        "tiff": (saved(picture(), "TIFF"), PIXELS),
        "tiff, packed": (saved(picture(), "TIFF", compression="tiff_lzw"), PIXELS),
        "tiff, two pages": (two, PIXELS),
        "tiff, cmyk": (saved(picture("CMYK"), "TIFF"), "pillow"),
        "tiff, lab": (saved(picture("LAB"), "TIFF"), "pillow"),
        "tiff, turned": (saved(picture(), "TIFF", exif=exif(6)), np.rot90(PIXELS, -1)),
        "tiff, 16 bits": (tiff(little, grey), triple(GREY)),
        "tiff, 16 bits, other order": (tiff(big, grey, order=">"), triple(GREY)),
        "tiff, 16 bits, white is 0": (tiff(little, grey | {262: (3, 0)}), triple(255 - GREY)),
        "tiff, 12 bits": (tiff(twelve, {258: (3, 12), 262: (3, 1)}), triple(GREY)),
        "tiff, pages in a circle": (loop, triple(GREY)),
        "tiff, 32 bits": (saved(picture("I"), "TIFF"), "unsupported"),
        "tiff, floats": (saved(picture("F"), "TIFF"), "unsupported"),
        "tiff, strip far away": (tiff(little, grey | {273: (4, 2**31)}), "truncated"),
        "tiff, declares too much": (
            tiff(little, grey | {256: (4, 10**5), 257: (4, 10**5)}),
            "too large",
        ),
        "tiff, no tags": (b"II*\0\x08\0\0\0\0\0\0\0\0\0", "broken"),
        "ppm": (saved(picture(), "PPM"), PIXELS),
        "ppm, as text": (f"P3 40 30 255\n{text}\n".encode(), PIXELS),
        "ppm, other maximum": (b"P5 40 30 51\n" + (GREY // 5).tobytes(), triple(GREY // 5 * 5)),
        "pgm, 16 bits": (deep_pgm, triple(GREY)),
        "pgm, 16 bits, half of it": (deep_pgm[:900], "truncated"),
        "ppm, no numbers": (b"P6 what is this\n", "broken"),
        "ppm, slow to read": (b"P3 4000 4000 255\n1 2 3", "too large"),
        "pfm, floats": (b"Pf\n4 4\n-1.0\n" + bytes(64), "unsupported"),
        "jpeg 2000": (saved(picture(), "JPEG2000"), PIXELS),
        "jpeg 2000, 16 bits": (saved(Image.fromarray(DEEP), "JPEG2000"), triple(GREY)),
        "jpeg 2000, half of it": (saved(picture(), "JPEG2000")[:400], "broken"),
        "avif": (saved(picture(), "AVIF"), "pillow"),
        "avif, half of it": (saved(picture(), "AVIF")[:500], "truncated"),
        "nothing": (b"", "empty"),
        "one byte": (b"\xff", "unsupported"),
        "zeros": (bytes(5000), "unsupported"),
        "text": (b"this is no image\n" * 50, "unsupported"),
        "noise": (np.random.default_rng(3).bytes(5000), "unsupported"),
        "web page": (b"\n<!DOCTYPE html><html>404</html>", "unsupported"),
        "svg": (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "unsupported"),
        "pdf": (b"%PDF-1.7\n" + bytes(99), "unsupported"),
        "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "unsupported"),
        "heic": (box(b"heic", b"mif1heic"), "unsupported"),
        "heic, other brand": (box(b"mif1", b"mif1heic"), "unsupported"),
        "video": (box(b"isom", b"isommp42"), "unsupported"),
        "jpeg xl": (b"\xff\x0a" + bytes(50), "unsupported"),
        "zip": (b"PK\x03\x04" + bytes(50), "unsupported"),
        "gzip": (b"\x1f\x8b\x08" + bytes(50), "unsupported"),
        "lfs pointer": (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "unsupported",
        ),
        "icon": (saved(picture(), "ICO"), "unsupported"),
        "photoshop": (b"8BPS\0\1" + bytes(100), "unsupported"),
    }


CASES = png_cases() | jpeg_cases() | other_cases()
