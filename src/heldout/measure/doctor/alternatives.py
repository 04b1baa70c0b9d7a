"""The preprocessings that a model is likely to have been trained with, beside the stated one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from heldout.data.images.preprocessing import Geometry, Preprocessing

Triple = tuple[float, float, float]

VALUES: dict[str, tuple[float, Triple, Triple]] = {
    "mean and std of ImageNet": (255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "mean 0.5, std 0.5": (255.0, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "(x - 127) / 128": (1.0, (127.0, 127.0, 127.0), (128.0, 128.0, 128.0)),
    "values from 0 to 1": (255.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "values from 0 to 255": (1.0, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "mean and std of CLIP": (
        255.0,
        (0.48145466, 0.4578275, 0.40821073),
        (0.26862954, 0.26130258, 0.27577711),
    ),
}
"""Scale, mean and standard deviation in use, the commonest first; all in the order RGB."""

CAFFE: tuple[float, Triple, Triple] = (1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0))
"""Means of networks converted from Caffe, in the order BGR."""

CROPS = (0.875, 0.95, 1.0)
"""Side of the crop as a share of the resized shorter side."""
RESIZE_STEP = 1.1
"""Factor by which the size before the crop is varied."""
_EQUAL = 2e-3
"""Values that differ by less than this, on a range of about 2, are one preprocessing."""


@dataclass(frozen=True)
class Alternative:
    """A preprocessing with one thing changed, and what that is in words."""

    name: str
    preprocessing: Preprocessing


def alternatives(given: Preprocessing) -> list[Alternative]:
    """Likely preprocessings that differ from ``given`` in one thing, each once.

    Scale with mean and std; order of colours; interpolation; crop; size before the crop; squashing
    in place of cropping; EXIF orientation. The input size stays, as a model's graph may fix it.
    """
    found: dict[str, Alternative] = {}
    for name, preprocessing in (*_values(given), *_geometries(given)):
        if not _same(preprocessing, given):
            found.setdefault(preprocessing.key, Alternative(name, preprocessing))
    return list(found.values())


def _values(given: Preprocessing) -> Iterator[tuple[str, Preprocessing]]:
    for name, (scale, mean, std) in VALUES.items():
        if given.colours == "BGR":
            mean, std = mean[::-1], std[::-1]
        yield name, replace(given, scale=scale, mean=mean, std=std)
    other: Literal["RGB", "BGR"] = "RGB" if given.colours == "BGR" else "BGR"
    turned = replace(given, colours=other, mean=given.mean[::-1], std=given.std[::-1])
    yield f"colours {other}", turned
    scale, mean, std = CAFFE
    yield (
        "BGR less the means of Caffe",
        replace(given, scale=scale, mean=mean, std=std, colours="BGR"),
    )


def _geometries(given: Preprocessing) -> Iterator[tuple[str, Preprocessing]]:
    here = given.geometry
    for filter_ in ("bilinear", "bicubic"):
        if here.interpolation != filter_ and here.resize != "none":
            yield f"{filter_} resize", _with(given, interpolation=filter_)
    side = min(here.crop_height, here.crop_width)
    for share in CROPS:
        size = round(side / share)
        yield (
            f"shorter side to {size}, crop of {share:g}",
            _with(given, resize="shorter", resize_height=size, resize_width=size),
        )
    squashed = {"resize_height": here.crop_height, "resize_width": here.crop_width}
    yield "squashed to the input size", _with(given, resize="exact", **squashed)
    if here.resize == "shorter":
        for factor in (RESIZE_STEP, 1 / RESIZE_STEP):
            size = round(here.resize_height * factor)
            if size >= side:  # a smaller one would pad with black
                yield (
                    f"shorter side to {size}",
                    _with(given, resize_height=size, resize_width=size),
                )
    applied = "not applied" if here.exif else "applied"
    yield f"EXIF orientation {applied}", _with(given, exif=not here.exif)


def _with(given: Preprocessing, **changes: object) -> Preprocessing:
    geometry: Geometry = replace(given.geometry, **changes)  # type: ignore[arg-type]
    return replace(given, geometry=geometry)


def _same(one: Preprocessing, other: Preprocessing) -> bool:
    """Whether two preprocessings give a model the same numbers, but for less than it can notice."""
    if _shape(one.geometry) != _shape(other.geometry) or one.colours != other.colours:
        return False
    return all(abs(a - b) < _EQUAL for a, b in zip(_line(one), _line(other), strict=True))


def _shape(geometry: Geometry) -> Geometry:
    """The geometry with what plays no part in it set to one value."""
    if geometry.resize == "shorter":
        return replace(geometry, resize_width=geometry.resize_height)
    if geometry.resize == "none":
        return replace(geometry, resize_width=1, resize_height=1, interpolation="bilinear")
    return geometry


def _line(preprocessing: Preprocessing) -> list[float]:
    """The input for black and for white, channel by channel: with these the line is known."""
    return [
        (pixel / preprocessing.scale - mean) / std
        for mean, std in zip(preprocessing.mean, preprocessing.std, strict=True)
        for pixel in (0.0, 255.0)
    ]
