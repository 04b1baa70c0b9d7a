"""Other loaders in front of the same ResNet-50, for predict_gpu.py: NVIDIA's DALI and Meta's SPDL.

Each is written as its own documentation advises, with the same files, geometry and batch. Both are
optional: where a package is not installed, the table says so.

DALI (``nvidia-dali-cuda130``): reader, decoder with the card's JPEG engines and CUDA cores
(``device="mixed"``), resize and crop on the GPU, batches ahead of the model, zero copies to torch. Up
to three of its batches are ready when a pass begins, of 165.

SPDL (``spdl-io``, ``spdl-core``, and FFmpeg's libraries): a pipeline of threads; FFmpeg decodes and
resizes without the interpreter's lock, a thread of its own copies to the GPU. Its nvJPEG functions
are not in the published wheels ("not built with NVJPEG support"), so the cores decode.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def missing(*names: str) -> str:
    """Why a peer cannot run here; empty if it can."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            return f"not installed ({str(error).splitlines()[0][:80]})"
    return ""


class Peer:
    """A loader that feeds batches to a step; ``last`` keeps the top classes of the last pass."""

    def __init__(self, paths: list[str], step: Any, *, batch: int, threads: int) -> None:
        self.paths, self.step, self.batch, self.threads = paths, step, batch, threads
        self.last: dict[str, Any] = {}

    def batches(self) -> Iterator[Any]:
        raise NotImplementedError

    def __call__(self, count: int | None = None) -> tuple[int, float]:
        import torch

        found, seen = [], 0
        with torch.inference_mode():
            began = time.perf_counter()
            for images in self.batches():
                found.append(self.step(images))
                seen += len(images)
            top = torch.cat(found).cpu().numpy()
            seconds = time.perf_counter() - began
        self.last = {"top1": [top[:, 0].astype(np.int64)]}
        if seen != len(self.paths):
            raise RuntimeError(f"{seen} images of {len(self.paths)}")
        return seen, seconds

    def close(self) -> None:
        pass


class Dali(Peer):
    """Yields float16 images, channels last and normalised, or their uint8 pixels (b, h, w, 3)."""

    def __init__(
        self, paths: list[str], step: Any, *, pixels: bool = False, hardware: float = 0.65, **sizes: Any
    ) -> None:  # fmt: skip
        super().__init__(paths, step, **sizes)
        self.pixels, self.hardware = pixels, hardware
        self._iterator: Any = None

    def _build(self) -> Any:
        from nvidia.dali import fn, pipeline_def, types
        from nvidia.dali.plugin.base_iterator import LastBatchPolicy
        from nvidia.dali.plugin.pytorch import DALIGenericIterator

        @pipeline_def(
            batch_size=self.batch, num_threads=self.threads, device_id=0,
            prefetch_queue_depth=3, exec_dynamic=True,
        )  # fmt: skip
        def loader() -> Any:
            encoded, _ = fn.readers.file(
                files=self.paths, name="reader", read_ahead=True, pad_last_batch=True
            )
            images = fn.decoders.image(
                encoded, device="mixed", output_type=types.RGB, hw_decoder_load=self.hardware,
                preallocate_width_hint=608, preallocate_height_hint=512,
            )  # fmt: skip
            images = fn.resize(
                images, resize_shorter=256, interp_type=types.INTERP_LINEAR, antialias=True,
                subpixel_scale=False,
            )  # fmt: skip
            values = {} if self.pixels else {
                "mean": [255 * v for v in MEAN], "std": [255 * v for v in STD]
            }  # fmt: skip
            return fn.crop_mirror_normalize(
                images, crop=(224, 224), rounding="truncate", output_layout="HWC",
                dtype=types.UINT8 if self.pixels else types.FLOAT16, **values,
            )  # fmt: skip

        return DALIGenericIterator(
            [loader()], ["images"], reader_name="reader", auto_reset=True,
            last_batch_policy=LastBatchPolicy.PARTIAL,
        )  # fmt: skip

    def batches(self) -> Iterator[Any]:
        if self._iterator is None:
            self._iterator = self._build()
        for (made,) in self._iterator:
            yield made["images"] if self.pixels else made["images"].permute(0, 3, 1, 2)

    def close(self) -> None:
        self._iterator = None


class Spdl(Peer):
    """Yields float16 images, channels last; normalised on the GPU."""

    PART = 32  # images a decoding thread takes at a time

    def batches(self) -> Iterator[Any]:
        import spdl.io
        import torch
        from spdl.pipeline import PipelineBuilder

        geometry = spdl.io.get_video_filter_desc(
            scale_width=256, scale_height=256, scale_algo="bilinear", scale_mode="crop",
            crop_width=224, crop_height=224, pix_fmt="rgb24",
        )  # fmt: skip
        mean, std = (torch.tensor(v, device="cuda") * 255 for v in (MEAN, STD))

        def decode(paths: list[str]) -> Any:
            buffer = spdl.io.load_image_batch(paths, width=None, height=None, filter_desc=geometry)
            return spdl.io.to_torch(buffer)

        def transfer(parts: list[Any]) -> Any:
            return spdl.io.transfer_tensor_h2d(torch.cat(parts))

        with ThreadPoolExecutor(1) as copying:
            pipeline = (
                PipelineBuilder()
                .add_source(self.paths)
                .aggregate(self.PART)
                .pipe(decode, concurrency=self.threads, output_order="input")
                .aggregate(self.batch // self.PART)
                .pipe(transfer, executor=copying)
                .add_sink(4)
                .build(num_threads=self.threads)
            )
            with pipeline.auto_stop():
                for pixels in pipeline:
                    images = ((pixels.float() - mean) / std).half()
                    yield images.permute(0, 3, 1, 2)
