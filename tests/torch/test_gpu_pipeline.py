"""The GPU path stage by stage; without a GPU the same threads on the CPU, Pillow for the decoder."""

from __future__ import annotations

import io
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heldout.data.images.preprocessing import Geometry, Preprocessing, pixels_of
from heldout.data.images.sources import MemorySource
from heldout.models.gpu import decode
from heldout.models.gpu import pipeline as pipeline_module
from heldout.models.gpu.batch import Settings
from heldout.models.gpu.decode import Event, NvjpegError
from heldout.models.gpu.network import Network
from heldout.models.gpu.pipeline import Pipeline, PipelineClosed
from heldout.models.gpu.threshold import Calibration
from tests.torch.gpu_case import DEVICE, PillowDecoder, file_reads, reads_of

pytestmark = pytest.mark.usefixtures("device_decodes")

GEOMETRY = Geometry(resize_height=40, crop_height=32, crop_width=32)
SETTINGS = Settings(
    batch=16, readers=2, pillow=2, slots=3,
    slot_bytes=1 << 13, sample=150,
)  # fmt: skip
NOTHING_AGAIN = Calibration(
    threshold=0.0, sample=0, differing=0, knee=0.0, share=0.0, scale=0.0, expected=0.0,
    rechecked=0.0,
)  # fmt: skip
COUNT, BROKEN, EMPTY, GONE = 240, 50, 60, 70


def network(name: str, module: torch.nn.Module, **options: Any) -> Network:
    preprocessing = Preprocessing(geometry=GEOMETRY)
    model = SimpleNamespace(name=name, module=module, preprocessing=preprocessing)
    return Network(model, DEVICE, **options)


def photo(number: int) -> bytes:
    """A smooth image, of many kinds: grey, CMYK, progressive, cut short, empty."""
    rng = np.random.default_rng(number)
    height, width = (int(v) for v in rng.integers(30, 120, 2))
    coarse = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    image = coarse.resize((width, height), Image.Resampling.BICUBIC)
    mode = "CMYK" if number % 13 == 0 else "L" if number % 11 == 0 else "RGB"
    out = io.BytesIO()
    image.convert(mode).save(out, "JPEG", quality=90, progressive=number % 7 == 0)
    data = out.getvalue()
    return {BROKEN: data[:400], EMPTY: b""}.get(number, data)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    found = [folder / f"{i:04d}.jpg" for i in range(COUNT)]
    for i, path in enumerate(found):
        if i != GONE:
            path.write_bytes(photo(i))
    return found


@pytest.fixture(scope="module")
def networks() -> list[Network]:
    """Two classifiers in bfloat16, whose rounding changes some answers."""
    found = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        module = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 5, 4), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(8 * 49, 20),
        )  # fmt: skip
        found.append(network(f"m{seed}", module, precision="bfloat16"))
    return found


def exact_top(network: Network) -> np.ndarray:
    """The top class of every image along the exact path alone; -1 where it fails."""
    top = np.full(COUNT, -1)
    for row in range(COUNT):
        pixels = pixels_of(photo(row), GEOMETRY) if row != GONE else None
        if isinstance(pixels, np.ndarray):
            top[row] = int(
                network.exact(torch.from_numpy(pixels.copy())[None].to(DEVICE))[0].argmax()
            )
    return top


def run(reads: Any, networks: list[Network], settings: Settings, *ranges: tuple[int, int]) -> Any:
    with closing(Pipeline(reads, networks, device=DEVICE, settings=settings)) as pipeline:
        outputs = [out for start, stop in ranges for out in pipeline.run(start, stop)]
        return outputs, pipeline.rechecker.calibrations, pipeline.rechecker.equal_kinds


def without_recheck(reads: Any, networks: list[Network]) -> Pipeline:
    """A pipeline that knows its thresholds, of zero: no sample is taken and nothing runs again."""
    known = (NOTHING_AGAIN,) * len(networks)
    return Pipeline(reads, networks, device=DEVICE, settings=SETTINGS, calibrations=known)


def failures_of(outputs: list[Any], model: int) -> dict[int, str]:
    return {
        out.start + place: why
        for out in outputs
        for place, why in out.models[model].failures.items()
    }


def test_rechecked_answers_are_the_exact_ones(paths: list[Path], networks: list[Network]) -> None:
    outputs, calibrations, equal_kinds = run(file_reads(paths), networks, SETTINGS, (0, COUNT))
    assert [out.start for out in outputs] == list(range(0, COUNT, 16))
    for i, network in enumerate(networks):
        top = np.concatenate([out.models[i].topk[:, 0] for out in outputs])
        np.testing.assert_array_equal(top, exact_top(network))
        assert calibrations[i].sample > 100
        assert 0 < sum(out.models[i].rechecked.sum() for out in outputs) < COUNT // 2
    # The device's pixels are Pillow's, and that was noticed.
    assert -1 in equal_kinds and len(equal_kinds) > 1


def test_failures_have_reasons_and_no_answers(paths: list[Path], networks: list[Network]) -> None:
    outputs, _, _ = run(file_reads(paths), networks, SETTINGS, (0, COUNT))
    reasons = failures_of(outputs, 1)
    assert sorted(reasons) == [BROKEN, EMPTY, GONE]
    assert [reasons[row].split(":")[0] for row in sorted(reasons)] == [
        "truncated", "empty", "unreadable",
    ]  # fmt: skip
    for out in outputs:
        for model in out.models:
            for place in model.failures:
                assert (model.topk[place] == -1).all()
                assert np.isnan(model.logits[place]).all()


class Overflowing(torch.nn.Module):
    """No number for bright images, not even in float32."""

    def forward(self, images: Any) -> Any:
        brightness = images.float().mean((1, 2, 3))
        logits = torch.stack([brightness, -brightness], 1)
        return torch.where(brightness[:, None] > 0, torch.inf, logits)


def test_a_failure_of_one_model_is_its_own(paths: list[Path], networks: list[Network]) -> None:
    over = network("over", Overflowing())
    both, _, _ = run(file_reads(paths), [*networks, over], SETTINGS, (0, COUNT))
    alone, _, _ = run(file_reads(paths), networks, SETTINGS, (0, COUNT))
    failed = failures_of(both, 2)
    assert len(failed) > 20
    assert sum(why.startswith("not finite: over") for why in failed.values()) == len(failed) - 3
    for a, b in zip(alone, both, strict=True):
        assert a.models[0].failures == b.models[0].failures
        np.testing.assert_array_equal(a.models[0].topk, b.models[0].topk)


def test_closing_ends_whoever_waits(paths: list[Path], networks: list[Network]) -> None:
    pipeline = Pipeline(file_reads(paths), networks, device=DEVICE, settings=SETTINGS)
    never, asked = threading.Event(), threading.Event()

    def calibrate(*_: object) -> None:  # so that no batch can be finished
        asked.set()
        never.wait(60)

    pipeline.rechecker.calibrate = calibrate  # type: ignore[method-assign]
    found: list[BaseException] = []

    def wait() -> None:
        try:
            next(pipeline.run(0, COUNT))
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert asked.wait(60)
    pipeline.close()
    thread.join(60)
    never.set()
    assert [type(error) for error in found] == [PipelineClosed]
    with pytest.raises(PipelineClosed):
        next(pipeline.run(0, 16))


class Slow(torch.nn.Module):
    """Takes its time, so that everything before it fills up."""

    def forward(self, images: Any) -> Any:
        time.sleep(0.3)
        return images.float().mean((2, 3))


def test_closing_does_not_wait_for_buffers_that_nobody_frees(paths: list[Path]) -> None:
    slow = network("slow", Slow())
    pipeline = without_recheck(file_reads(paths), [slow])
    outputs = pipeline.run(0, COUNT)
    next(outputs)
    while not pipeline._pixels.empty() or pipeline._to_models.qsize() < 2:
        time.sleep(0.01)
    threads = list(pipeline._threads)
    pipeline.close()
    assert not any(thread.is_alive() for thread in threads)
    with pytest.raises(PipelineClosed):
        list(outputs)


@pytest.mark.parametrize("what", ["no scan", "another start in the data"])
def test_a_stream_that_only_looks_sound_fails_alone(
    what: str, tmp_path: Path, networks: list[Network]
) -> None:
    found = [tmp_path / f"{i}.jpg" for i in range(16)]
    for path in found:
        path.write_bytes(photo(1))
    data = photo(1)
    scan = data.index(b"\xff\xda")
    middle = (scan + len(data)) // 2
    found[3].write_bytes(
        data[:scan] + b"\xff\xd9"
        if what == "no scan"
        else data[:middle] + b"\xff\xd8" + data[middle:]
    )
    outputs, _, _ = run(file_reads(found), networks, SETTINGS, (0, 16))
    assert [set(out.models[0].failures) for out in outputs] == [{3}]
    assert (outputs[0].models[0].topk[[2, 4], 0] == outputs[0].models[0].topk[0, 0]).all()


@pytest.mark.parametrize("works", [{"hardware", "cuda"}, {"cuda"}, set()])
def test_a_device_without_engines_decodes_otherwise(
    works: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    class Stream:
        decodes = True

        def __init__(self, geometry: Geometry, device: str, backend: str) -> None:
            tried.append(backend)
            if backend not in works:
                raise NvjpegError("nvjpegCreateEx failed with status 7")

    monkeypatch.setattr(decode, "NvjpegDecoder", Stream)
    monkeypatch.setattr(decode, "can_use_kernels", lambda device: True)
    made = decode.stream_decoder(GEOMETRY, DEVICE)
    assert made.decodes == bool(works)
    assert tried == (["hardware"] if "hardware" in works else ["hardware", "cuda"])


def test_where_nothing_decodes_the_readers_make_all_pixels(
    paths: list[Path], networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decode, "can_use_kernels", lambda device: False)
    monkeypatch.setattr(pipeline_module, "stream_decoder", decode.stream_decoder)
    outputs, _, equal_kinds = run(file_reads(paths), networks, SETTINGS, (0, COUNT))
    top = np.concatenate([out.models[0].topk[:, 0] for out in outputs])
    np.testing.assert_array_equal(top, exact_top(networks[0]))
    assert equal_kinds == {-1}


def test_a_refused_batch_takes_the_pixels_of_the_exact_path(
    paths: list[Path], networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(PillowDecoder):
        def decode(self, *given: Any) -> Any:
            raise NvjpegError("nvjpegDecodeBatched failed with status 3")

    monkeypatch.setattr(pipeline_module, "stream_decoder", Refusing)
    outputs, _, _ = run(file_reads(paths), networks, SETTINGS, (0, COUNT))
    top = np.concatenate([out.models[0].topk[:, 0] for out in outputs])
    np.testing.assert_array_equal(top, exact_top(networks[0]))


class LateEvent(Event):
    """A decoder's mark that is noticed long after the batch is through all other stages."""

    def wait(self) -> None:
        time.sleep(0.05)


def test_a_slot_is_never_in_two_batches(paths: list[Path], networks: list[Network]) -> None:
    with closing(without_recheck(file_reads(paths), networks)) as pipeline:
        for decoder in pipeline._decoders:
            decoder.stream.record = lambda: LateEvent()  # type: ignore[method-assign]
        list(pipeline.run(0, COUNT))
        slots = [pipeline._slots.get(timeout=60) for _ in range(SETTINGS.slots)]
        assert len({id(slot) for slot in slots}) == SETTINGS.slots
        assert pipeline._slots.empty()


def test_a_fault_in_a_reader_reaches_the_caller(
    paths: list[Path], networks: list[Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(
        slot: object, reads: object, rows: object, places: range, *_: object, **more: Any
    ) -> None:
        if places.start:
            raise OSError("the disk is gone")

    monkeypatch.setattr(pipeline_module, "read_part", fails)
    with closing(without_recheck(file_reads(paths), networks)) as pipeline:
        with pytest.raises(OSError, match="the disk is gone"):
            list(pipeline.run(0, 64))
        slots = [pipeline._slots.get(timeout=60) for _ in range(SETTINGS.slots)]
        assert len({id(slot) for slot in slots}) == SETTINGS.slots


def test_ranges_and_sources_change_nothing(paths: list[Path], networks: list[Network]) -> None:
    ids = [path.name for path in paths[:GONE]]
    source = MemorySource({name: photo(i) for i, name in enumerate(ids)})
    whole, _, _ = run(reads_of(source, ids), networks, SETTINGS, (0, GONE))
    parts, _, _ = run(reads_of(source, ids), networks, SETTINGS, (32, GONE), (0, 32))
    parts = sorted(parts, key=lambda out: out.start)
    for i in range(2):
        a, b = (
            np.concatenate([out.models[i].topk[:, 0] for out in outs]) for outs in (whole, parts)
        )
        np.testing.assert_array_equal(a, b)


def test_a_fault_in_a_model_reaches_the_caller(paths: list[Path]) -> None:
    class Broken(torch.nn.Module):
        def forward(self, images: Any) -> Any:
            raise RuntimeError("out of order")

    broken = network("broken", Broken())
    with (
        closing(without_recheck(file_reads(paths), [broken])) as pipeline,
        pytest.raises(RuntimeError, match="out of order"),
    ):
        list(pipeline.run(0, 64))
