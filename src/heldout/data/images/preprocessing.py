"""Preprocessing as data: what a model does to an image before it sees it.

Two halves. *Geometry* (EXIF, resize, crop) turns a decoded image into uint8 pixels and is shared
by all models with the same geometry, so that each image is decoded once. *Values* (scale, mean,
standard deviation, layout) turn those pixels into the numbers of one model's input.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos", "box", "hamming"]
INTERPOLATIONS: tuple[Interpolation, ...] = (
    "nearest",
    "bilinear",
    "bicubic",
    "lanczos",
    "box",
    "hamming",
)
Resize = Literal["shorter", "exact", "none"]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """From a decoded image to uint8 pixels of (crop_height, crop_width, 3).

    ``resize``         ``shorter``: the shorter side becomes ``resize_height`` and the longer
                       ``int(shorter * long / short)``, as torchvision and timm round it;
                       ``exact``: to (resize_height, resize_width), aspect not kept; ``none``
    ``interpolation``  Pillow's filter of that name, antialiased as Pillow does it
    ``crop_*``         centre crop; offsets ``int(round((n - crop) / 2))``; smaller images are
                       padded with zeros, as torchvision does
    ``exif``           whether the EXIF orientation is applied first; torchvision and timm do not
    """

    resize: Resize = "shorter"
    resize_height: int = 256
    resize_width: int = 256
    interpolation: Interpolation = "bilinear"
    crop_height: int = 224
    crop_width: int = 224
    exif: bool = False

    def __post_init__(self) -> None:
        if self.interpolation not in INTERPOLATIONS:
            raise UserError(
                f"no interpolation {self.interpolation!r}", fix=f"use {', '.join(INTERPOLATIONS)}"
            )
        if self.resize not in ("shorter", "exact", "none"):
            raise UserError(f"no resize {self.resize!r}", fix="use shorter, exact or none")
        sizes = (self.resize_height, self.resize_width, self.crop_height, self.crop_width)
        if any(not isinstance(size, int) or size < 1 for size in sizes):
            raise UserError(f"sizes {sizes} of a preprocessing", fix="give whole numbers from 1 on")

    @cached_property
    def key(self) -> str:
        """Equal for equal geometries: what decoded pixels are shared by."""
        return sha256_text(canonical_json(asdict(self)))[:12]


@dataclass(frozen=True, kw_only=True)
class Preprocessing:
    """Geometry, then ``(pixel / scale - mean) / std`` a channel, as float32.

    ``scale``   255 for models that expect 0..1 before mean and std; 1 for raw values
    ``colours`` order of the channels that the model expects: RGB or BGR
    ``layout``  NCHW or NHWC
    """

    geometry: Geometry = Geometry()
    scale: float = 255.0
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    colours: Literal["RGB", "BGR"] = "RGB"
    layout: Literal["NCHW", "NHWC"] = "NCHW"

    def __post_init__(self) -> None:
        for key in ("mean", "std"):
            if len(getattr(self, key)) != 3:
                raise UserError(f"{key} of a preprocessing needs 3 values", fix="one a channel")
        for number in (self.scale, *self.mean, *self.std):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise UserError(
                    f"{number!r} in a preprocessing", fix="scale, mean, std are numbers"
                )
            if not math.isfinite(number):
                raise UserError(f"{number!r} in a preprocessing", fix="scale, mean, std are finite")
        if self.scale <= 0 or min(self.std) <= 0:
            raise UserError("scale or std of a preprocessing is not above 0", fix="correct it")
        if self.colours not in ("RGB", "BGR"):
            raise UserError(f"colours {self.colours!r}", fix="use RGB or BGR")
        if self.layout not in ("NCHW", "NHWC"):
            raise UserError(f"layout {self.layout!r}", fix="use NCHW or NHWC")
        # Whole numbers become floats, so that 1 and 1.0 are one preprocessing with one key.
        object.__setattr__(self, "scale", float(self.scale))
        for key in ("mean", "std"):
            object.__setattr__(self, key, tuple(float(value) for value in getattr(self, key)))

    def to_dict(self) -> dict[str, Any]:
        """As a JSON object: the fields of the geometry and of the values side by side."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "geometry"}
        return {**asdict(self.geometry), **own, "mean": list(self.mean), "std": list(self.std)}

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Preprocessing:
        """The preprocessing that :meth:`to_dict` wrote; fields left out have their defaults."""
        names = {f.name for f in fields(Geometry)}
        unknown = sorted(set(value) - names - {f.name for f in fields(cls)})
        if unknown or "geometry" in value:
            raise UserError(
                f"a preprocessing has no field {(unknown or ['geometry'])[0]!r}",
                fix=f"it has {', '.join(sorted(cls().to_dict()))}",
            )
        own = {k: v for k, v in value.items() if k not in names}
        return cls(geometry=Geometry(**{k: v for k, v in value.items() if k in names}), **own)

    @cached_property
    def key(self) -> str:
        """Equal for equal preprocessings."""
        return sha256_text(canonical_json(self.to_dict()))[:12]
