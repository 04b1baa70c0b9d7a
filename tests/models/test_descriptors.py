"""Images as vectors: what a hash is, and what becomes of odd files: a vector, or a reason."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.curate.pool_images import folder_pool
from heldout.data.images.preprocessing import apply_geometry
from heldout.models.adapters import Model, load_model
from heldout.models.descriptors import HashEncoder, PixelEncoder, image_encoder
from heldout.models.embeddings import embed, encoder_key

ENCODERS = {
    "pixels": PixelEncoder(),
    "hash": HashEncoder(),
    "features": image_encoder("lite0"),
    "unit features": image_encoder("lite0", unit=True),
}
ORIENTATION = 0x0112


def picture(seed: int = 0, size: tuple[int, int] = (60, 40)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


def large_png(path: Path) -> None:
    """A PNG that says 50,000 × 50,000, which would be 10 GB."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    data = chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(100))) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + data)


def rotated(path: Path) -> None:
    """The picture on its side, with a tag that says so."""
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    picture().transpose(Image.Transpose.ROTATE_90).save(path, exif=exif)


def truncated(path: Path) -> None:
    picture(size=(200, 200)).save(path)
    path.write_bytes(path.read_bytes()[:900])


def animated(path: Path) -> None:
    picture().save(path, save_all=True, append_images=[picture(1), picture(2)])


def palette(path: Path) -> None:
    picture().convert("P").save(path, transparency=0)


def sixteen_bits(path: Path) -> None:
    grey = np.asarray(picture().convert("L")).astype(np.uint16)
    Image.fromarray(grey * 256 + 255).save(path)


def with_alpha(path: Path) -> None:
    made = picture().convert("RGBA")
    made.putalpha(Image.linear_gradient("L").resize(made.size))
    made.save(path)


def written(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


def saved(mode: str, size: tuple[int, int] = (60, 40)) -> Callable[[Path], object]:
    return lambda path: picture(size=size).convert(mode).save(path)


GOOD: dict[str, Callable[[Path], object]] = {
    "alpha.png": with_alpha,
    "animated.gif": animated,
    "animated.png": animated,
    "bilevel.png": saved("1"),
    "cmyk.jpg": saved("CMYK"),
    "grey.jpg": saved("L"),
    "grey-alpha.png": saved("LA"),
    "line.png": saved("RGB", (3000, 1)),
    "one-pixel.png": saved("RGB", (1, 1)),
    "one-pixel-grey.gif": saved("L", (1, 1)),
    "palette.png": palette,
    "plain.png": saved("RGB"),
    "rotated.png": rotated,
    "sixteen-bits.png": sixteen_bits,
    "sixteen-bits.tiff": sixteen_bits,
}
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "broken.jpg": (written(b"\xff\xd8\xff\xe0" + bytes(range(256)) * 4), "broken"),
    "drawing.png": (written(b'<svg xmlns="http://www.w3.org/2000/svg"/>'), "unsupported"),
    "empty.png": (written(b""), "empty"),
    "float.tiff": (saved("F"), "unsupported"),
    "large.png": (large_png, "too large"),
    "text.jpg": (written(b"not an image"), "unsupported"),
    "truncated.jpg": (truncated, "truncated"),
}


@pytest.mark.parametrize("name", ENCODERS)
def test_every_odd_file_has_a_vector_or_a_reason(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    for file, make in {**GOOD, **{file: make for file, (make, _) in BAD.items()}}.items():
        make(folder / file)
    picture(8).save(folder / "gone.png")
    pool = folder_pool(folder)
    (folder / "gone.png").unlink()
    made = embed(pool, ENCODERS[name], workspace=Workspace(tmp_path / "workspace"))
    failures = made.facts["failures"]
    assert set(made.ids) == {*GOOD, *BAD, "gone.png"}
    # A model resizes the shorter side: a line would become 768,000 pixels wide.
    bad = {file: trouble for file, (_, trouble) in BAD.items()} | (
        {"line.png": "too large"} if "features" in name else {}
    )
    assert set(failures) == {*bad, "gone.png"}
    assert {file: failures[file].partition(":")[0] for file in bad} == bad
    assert failures["gone.png"].startswith("unreadable: ")
    of = dict(zip(made.ids, made.vectors, strict=True))
    for file in failures:  # nothing that could be taken for a vector
        assert np.isnan(of[file]).all() if made.vectors.dtype.kind == "f" else not of[file].any()
    for file in set(GOOD) - set(bad):
        assert np.isfinite(of[file]).all(), file
    plain = of["plain.png"]
    # Alpha is dropped, and an animation is its first frame.
    np.testing.assert_array_equal(of["alpha.png"], plain)
    np.testing.assert_array_equal(of["animated.png"], plain)
    if name != "features":  # a model by itself gets images as its library would decode them
        np.testing.assert_array_equal(of["rotated.png"], plain)
    assert made.facts["encoder"]["key"] == encoder_key(ENCODERS[name])


def bits_by_hand(image: Image.Image) -> list[int]:
    """The hash, pixel by pixel."""
    small = image.resize((17, 16), Image.Resampling.BICUBIC)
    made = []
    for y in range(16):
        row = [299 * r + 587 * g + 114 * b for r, g, b in np.asarray(small)[y].tolist()]
        made += [int(left < right) for left, right in itertools.pairwise(row)]
    return made


def test_a_hash_is_the_signs_of_differences() -> None:
    encoder = image_encoder("hash")
    images = [picture(seed, (50 + seed, 90)) for seed in range(5)]
    images += [Image.new("RGB", (9, 9), (7, 8, 9))]
    pixels = np.stack([apply_geometry(im, encoder.preprocessing.geometry) for im in images])
    bits = encoder.encode_images(pixels)
    assert bits.dtype == np.uint8 and bits.shape == (6, encoder.dimension) == (6, 256)
    assert bits.tolist() == [bits_by_hand(image) for image in images]
    assert not bits[-1].any() and 40 < bits[0].sum() < 216
    # Squared L2 of 0 and 1 is the number of bits that differ; half as bright is the same.
    darker = np.stack([pixels[0] // 2 * 2, pixels[0] // 2]).astype(np.uint8)
    one, other = encoder.encode_images(darker)
    np.testing.assert_array_equal(one, other)


def test_unit_features_are_the_models_own_of_length_one() -> None:
    raw, unit = ENCODERS["features"], ENCODERS["unit features"]
    model = load_model("lite0")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 224, 224, 3), np.uint8)
    assert isinstance(model, Model)
    features = model(pixels).features
    assert features is not None
    np.testing.assert_array_equal(raw.encode_images(pixels), features)
    lengths = np.sqrt((features.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(unit.encode_images(pixels), features / lengths, rtol=1e-6)
    assert encoder_key(raw) != encoder_key(unit)
    assert raw.preprocessing == model.preprocessing
    assert unit.preprocessing.geometry.exif and not raw.preprocessing.geometry.exif


def test_encoders_by_name() -> None:
    assert image_encoder("pixels").name == "pixels" and image_encoder("hash").name == "hash"
    assert image_encoder("lite0").name == "lite0-features"
    for encoder in ENCODERS.values():
        with pytest.raises(NotApplicable, match=r"reads? no texts"):
            encoder.encode_texts(["a dog"])
    keys = {encoder_key(encoder) for encoder in ENCODERS.values()}
    assert len(keys) == len(ENCODERS)


def test_predictions_are_not_an_encoder(tmp_path: Path) -> None:
    (tmp_path / "p.npz").write_bytes(b"x")
    with pytest.raises(UserError, match="holds predictions, not a model"):
        image_encoder(f"predictions:{tmp_path / 'p.npz'}")
