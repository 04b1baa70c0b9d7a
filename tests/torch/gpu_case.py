"""Where the tests of the GPU path run: on a GPU with its JPEG decoder where there is one, else on the
CPU with Pillow in the decoder's place. Everything else is the same code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from heldout.data.images import FolderSource, ImageSource
from heldout.data.images.preprocessing import Geometry, pixels_of
from heldout.models.gpu.decode import StreamDecoder
from heldout.models.gpu.read import HostBatch, Reads
from heldout.models.predictions.pixels import ImageFiles

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"


class PillowDecoder(StreamDecoder):
    """A device's decoder whose pixels are Pillow's; images of one sampling are of one kind."""

    decodes = True

    def __init__(self, geometry: Geometry, device: str) -> None:
        super().__init__(device)
        self.geometry = geometry

    def decode(self, slot: HostBatch, places: np.ndarray, pixels: Any) -> np.ndarray:
        for place in places.tolist():
            found = pixels_of(slot.encoded(place), self.geometry)
            pixels[place] = torch.from_numpy(np.array(found))
        return slot.shapes[places, 2].astype(np.int64)


def reads_of(source: ImageSource, names: list[str]) -> Reads:
    """Images of a source as the GPU path reads them."""
    return Reads(ImageFiles(source, names, [None] * len(names)))


def file_reads(paths: list[Path]) -> Reads:
    """Files of one folder."""
    return reads_of(FolderSource(paths[0].parent), [path.name for path in paths])
