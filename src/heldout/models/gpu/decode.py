"""Lanes that turn a slot of encoded images into one batch of pixels on a device."""

from __future__ import annotations

import contextlib
from typing import Any, Literal, Protocol

import numpy as np

from heldout.core.errors import HeldoutError, UserError
from heldout.data.images.preprocessing import Geometry
from heldout.models.gpu.exact import ExactPool
from heldout.models.gpu.lanes import Lane
from heldout.models.gpu.layout import Layout
from heldout.models.gpu.nvjpeg import Backend, Decoder, NvjpegError, Planes
from heldout.models.gpu.reader import Slot
from heldout.models.gpu.resize import Resizer

DecoderName = Literal["nvjpeg", "nvjpeg-cuda", "pillow"]


class DecodeLane(Protocol):
    """One thread's decoder; ``places`` are the images of the slot that it decodes."""

    lane: Lane

    def decode(self, slot: Slot, places: np.ndarray, pixels: Any) -> np.ndarray:
        """Give the work to the lane; ``slot`` and ``pixels`` are in use until it is through.

        Returns a number for the kind of each image: what holds for some of a kind holds for all.
        """
        ...

    def close(self) -> None:
        """Give back what the decoder holds."""
        ...


class NvjpegLane:
    """nvJPEG without torchvision, then our kernels."""

    def __init__(self, geometry: Geometry, device: str, *, backend: Backend) -> None:
        import torch

        self.lane = Lane(device, urgent=True)
        self.resizer = Resizer(geometry, device)
        self.output: Planes = "yuv" if self.resizer.kernels else "rgb"
        self.device = device
        with torch.cuda.device(device), self.lane.work():
            self.decoder = Decoder(backend=backend, output=self.output)
        self._held: tuple[np.ndarray, ...] = ()

    def decode(self, slot: Slot, places: np.ndarray, pixels: Any) -> np.ndarray:
        """See :class:`DecodeLane`."""
        import torch

        layout = self.resizer.plan(slot.shapes[places], places)
        data = (slot.buffer.data_ptr() + slot.starts[places]).astype(np.uint64)
        lengths = slot.lengths[places].astype(np.uint64)
        with torch.cuda.device(self.device), self.lane.work():
            images = self._images(layout)
            self._held = (data, lengths, images)  # the library may read them later
            self.decoder.decode(data, lengths, images, stream=self.lane.address)
            self.resizer.run(layout, pixels, planes=self.output == "yuv")
        return layout.kinds

    def close(self) -> None:
        """See :class:`DecodeLane`."""
        import torch

        with torch.cuda.device(self.device):
            self.decoder.close()
        self.lane.close()

    def _images(self, layout: Layout) -> np.ndarray:
        images = np.zeros((len(layout.table), 8), np.uint64)
        if self.output == "yuv":
            base = self.resizer.buffer("planes", layout.planes_bytes).data_ptr()
            images[:, :3] = layout.table[:, :3] + base
            images[:, 4:7] = layout.table[:, [3, 4, 4]]
            grey = layout.column("across") == 0
            images[grey, 1:3] = 0
            images[grey, 5:7] = 0
            return images
        base = self.resizer.buffer("rgb", layout.rgb_bytes).data_ptr()
        area = layout.column("plane")[:, None] * np.arange(3)
        images[:, :3] = layout.column("rgb")[:, None] + area + base
        images[:, 4:7] = layout.column("width")[:, None]
        return images


class PillowLane:
    """Pillow, then our resize: for devices without a decoder, and to test all but the decoder."""

    def __init__(self, geometry: Geometry, device: str) -> None:
        self.lane = Lane(device, urgent=True)
        self.resizer = Resizer(geometry, device)

    def decode(self, slot: Slot, places: np.ndarray, pixels: Any) -> np.ndarray:
        """See :class:`DecodeLane`."""
        import io

        import torch
        from PIL import Image

        layout = self.resizer.plan(slot.shapes[places], places)
        rgb = np.zeros(layout.rgb_bytes, np.uint8)
        for place, start in zip(places.tolist(), layout.column("rgb").tolist(), strict=True):
            try:
                with Image.open(io.BytesIO(slot.encoded(place))) as image:
                    planes = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
            except Exception as error:  # the exact path says what is wrong with it
                raise HeldoutError(f"Pillow refused an image ({error})") from None
            rgb[start : start + planes.size] = planes.ravel()
        with self.lane.work():
            buffer = self.resizer.buffer("rgb", layout.rgb_bytes)
            buffer[: len(rgb)] = torch.from_numpy(rgb)
            self.resizer.run(layout, pixels, planes=False)
        return layout.kinds

    def close(self) -> None:
        """See :class:`DecodeLane`."""
        self.lane.close()


def fill(decoder: DecodeLane, slot: Slot, pixels: Any, pool: ExactPool) -> np.ndarray:
    """All pixels of a slot: those that the device decodes, and those that the exact path made.

    Returns the decoder's number for the kind of each image; -1: the exact path's pixels.
    """
    import torch

    kinds = np.full(len(pixels), -1, np.int64)
    places = np.flatnonzero(slot.shapes[:, 0])
    if len(places):
        try:
            kinds[places] = decoder.decode(slot, places, pixels)
        except HeldoutError:
            # A stream that looked sound was refused: the batch takes the exact path's pixels.
            for place in places.tolist():
                slot.put(place, pool.decode(slot.encoded(place)))
    if slot.pixels:
        made = sorted(slot.pixels)
        stacked = torch.from_numpy(np.stack([slot.pixels[place] for place in made]))
        with decoder.lane.work():
            where = torch.tensor(made, device=pixels.device)
            pixels[where] = stacked.to(pixels.device)
    return kinds


def decode_lane(name: DecoderName, geometry: Geometry, device: str) -> DecodeLane:
    """A new lane with the decoder of that name; ``nvjpeg``: the best that the device has."""
    if name == "nvjpeg":
        return _best_lane(geometry, device)
    if name == "nvjpeg-cuda":
        return NvjpegLane(geometry, device, backend="cuda")
    if name == "pillow":
        return PillowLane(geometry, device)
    raise UserError(f"no decoder {name!r}", fix="use nvjpeg, nvjpeg-cuda or pillow")


def _best_lane(geometry: Geometry, device: str) -> DecodeLane:
    """nvJPEG on the JPEG engines, which only data-centre GPUs have; else on the GPU's cores; without
    the library, Pillow."""
    backends: tuple[Backend, ...] = ("hardware", "cuda")
    for backend in backends:
        with contextlib.suppress(NvjpegError):
            return NvjpegLane(geometry, device, backend=backend)
    return PillowLane(geometry, device)
