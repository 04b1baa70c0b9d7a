"""Where the tests of the GPU path run: on a GPU with its JPEG decoder where there is one, else on the
CPU with Pillow in the decoder's place. Everything else is the same code."""

from __future__ import annotations

import torch

from heldout.models.gpu.decode import DecoderName

DEVICE = "cuda:0" if torch.cuda.is_available() else "cpu"
DECODERS: tuple[DecoderName, ...] = (
    ("nvjpeg", "nvjpeg") if torch.cuda.is_available() else ("pillow", "pillow")
)
