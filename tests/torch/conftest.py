"""The torch tests run in an environment of their own (``make test-torch``); elsewhere they do not
exist. No test reaches a hub: what a library would fetch, a test lays into its cache.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore_glob = [] if HAS_TORCH else ["test_*.py"]

if HAS_TORCH:
    # Read when huggingface_hub is imported, so before any test.
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    try:
        import torchvision  # noqa: F401
    except RuntimeError:
        # torchvision from PyPI beside the CPU build of torch: its C++ operators do not load, and
        # importing it fails on the first of them. Declared, they are never called by a classifier.
        _OPERATORS = torch.library.Library("torchvision", "DEF")
        for _name in ("nms", "qnms"):
            _OPERATORS.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    if not torch.cuda.is_available():
        collect_ignore_glob += ["test_gpu_cuda.py"]

PHOTOS = 12


@pytest.fixture(scope="session")
def photos(shared_data: Path) -> list[bytes]:
    """The bytes of a dozen photographs of many shapes."""
    files = sorted((shared_data / "photos").glob("*.JPEG"))
    assert len(files) == 200
    return [file.read_bytes() for file in files[:: len(files) // PHOTOS][:PHOTOS]]


@pytest.fixture(scope="session")
def images(photos: list[bytes]) -> list[Any]:
    """The photographs as the libraries' own examples open them."""
    import io

    from PIL import Image

    return [Image.open(io.BytesIO(data)).convert("RGB") for data in photos]


@pytest.fixture
def device_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the CPU decodes as a device does."""
    from heldout.models.gpu import pipeline
    from tests.torch.gpu_case import DEVICE, PillowDecoder

    if DEVICE == "cpu":
        monkeypatch.setattr(pipeline, "stream_decoder", PillowDecoder)


@pytest.fixture
def torch_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which torch keeps fetched weights, empty."""
    folder = tmp_path / "torch-home"
    monkeypatch.setenv("TORCH_HOME", str(folder))
    checkpoints = folder / "hub" / "checkpoints"
    checkpoints.mkdir(parents=True)
    return checkpoints


@pytest.fixture
def hub_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Lays files where huggingface_hub keeps fetched ones: ``hub_home(repository, name) -> path``."""
    from huggingface_hub import constants

    root = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(root))

    def place(repository: str, name: str) -> Path:
        folder = root / f"models--{repository.replace('/', '--')}"
        commit = "0" * 40
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
        path = folder / "snapshots" / commit / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    return place


class Boom:
    """Unpickled, it writes the file ``boom`` into the current folder."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, ("touch boom",))


@pytest.fixture
def write_hostile(tmp_path: Path) -> Callable[[Path], Path]:
    """Writes a checkpoint with code in its pickle; the test's folder shows if it ever ran."""

    def write(path: Path) -> Path:
        torch.save({"state_dict": {"weight": torch.zeros(1)}, "args": Boom()}, path)
        assert not (tmp_path / "boom").exists()
        return path

    return write


def assert_close(ours: np.ndarray, reference: Any) -> None:
    """Logits agree within 1e-4, and within a thousandth of what tells one photograph from another.

    Random weights may give logits that hardly differ; the second bound keeps the test able to
    fail.
    """
    expected = reference.detach().numpy()
    assert ours.shape == expected.shape
    assert ours.dtype == np.float32
    spread = expected.std(axis=0).max()
    assert spread > 0
    assert np.abs(ours - expected).max() <= min(
        1e-4 * max(1.0, np.abs(expected).max()), 1e-3 * spread
    )
