from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.data.labels import LabelSpace
from heldout.models.adapters import Model, model_input
from heldout.models.adapters.torch_model import (
    TorchModel,
    load_checkpoint,
    read_checkpoint,
    resolve_device,
    seeded,
    weights_hash,
)

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
SPACE = LabelSpace.load("cifar-10")
SMALL = Preprocessing(
    geometry=Geometry(resize="none", crop_height=8, crop_width=6), mean=(0.5, 0.4, 0.3)
)


class Net(torch.nn.Module):
    """A small classifier that counts the batches it saw and may refuse large ones."""

    def __init__(self, *, most: int = 1000, error: Exception | None = None) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.fc = torch.nn.Linear(4, 10)
        self.most, self.error = most, error
        self.batches: list[int] = []

    def forward(self, x: Any) -> Any:
        self.batches.append(len(x))
        if len(x) > self.most:
            raise self.error or RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return self.fc(self.conv(x).relu().mean((2, 3)))


def net(**options: Any) -> Net:
    with seeded(0):
        return Net(**options)


def wrap(module: Any, **options: Any) -> TorchModel:
    stated = {"name": "net", "label_space": SPACE, "preprocessing": SMALL, "identity": {"a": 1}}
    return TorchModel(module, **{**stated, **options})


@pytest.fixture
def pixels() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (7, 8, 6, 3), dtype=np.uint8)


@pytest.mark.parametrize("device", DEVICES)
def test_it_is_a_model_and_gives_logits_and_features(pixels: np.ndarray, device: str) -> None:
    moved, module = net(), net()
    model = wrap(moved, classifier=moved.fc, device=device)
    assert isinstance(model, Model)
    answer = model(pixels)
    values = torch.from_numpy(model_input(pixels, SMALL))
    with torch.no_grad():
        features = module.conv(values).relu().mean((2, 3))
    np.testing.assert_allclose(answer.logits, module.fc(features).detach().numpy(), atol=1e-6)
    assert answer.features is not None
    np.testing.assert_allclose(answer.features, features.numpy(), atol=1e-6)
    assert answer.logits.dtype == answer.features.dtype == np.float32
    assert wrap(net())(pixels).features is None


@pytest.mark.parametrize("colours", ["RGB", "BGR"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("scale", [255.0, 1.0])
@pytest.mark.parametrize("device", DEVICES)
def test_values_are_those_of_the_numpy_path(
    colours: Any, layout: Any, scale: float, device: str
) -> None:
    every = np.arange(256, dtype=np.uint8).repeat(6).reshape(1, 32, 48)
    pixels = np.stack([every, every[:, ::-1], every[:, :, ::-1]], axis=-1)
    preprocessing = Preprocessing(
        geometry=Geometry(resize="none", crop_height=32, crop_width=48),
        scale=scale,
        colours=colours,
        layout=layout,
    )
    model = wrap(net(), preprocessing=preprocessing, device=device)
    made = model.prepare(np.ascontiguousarray(pixels)).cpu().numpy()
    np.testing.assert_array_equal(made, model_input(pixels, preprocessing))


def test_read_only_pixels_are_taken_and_left_alone(pixels: np.ndarray) -> None:
    model = wrap(net())
    expected, before = model(pixels).logits, pixels.copy()
    pixels.flags.writeable = False
    np.testing.assert_array_equal(model(pixels).logits, expected)
    np.testing.assert_array_equal(pixels, before)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        MemoryError(),
    ],
)
def test_out_of_memory_is_a_user_error(pixels: np.ndarray, error: Exception) -> None:
    with pytest.raises(UserError, match="net does not fit into the memory of cpu with 7 images"):
        wrap(net(most=2, error=error))(pixels)


def test_other_errors_are_not_taken_for_a_lack_of_memory(pixels: np.ndarray) -> None:
    module = net(most=2, error=RuntimeError("shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="shapes"):
        wrap(module)(pixels)
    assert module.batches == [7]


def test_wrong_pixels_and_wrong_label_spaces_are_refused(pixels: np.ndarray) -> None:
    model = wrap(net())
    for wrong in (pixels[:, :-1], pixels.astype(np.float32), pixels[0]):
        with pytest.raises(ValueError, match="instead of uint8"):
            model(wrong)
    with pytest.raises(MismatchError, match="net gives 10 outputs per image, its label space has"):
        wrap(net(), label_space=LabelSpace.load("imagenet-1k"))(pixels)


def test_worker_threads_compute_alone_and_the_main_thread_keeps_its_threads(
    pixels: np.ndarray,
) -> None:
    module = net()
    model = wrap(module, classifier=module.fc)
    expected = model(pixels)
    before = torch.get_num_threads()
    seen: list[int] = []
    answers: list[tuple[int, Any]] = []

    def work(number: int) -> None:
        for _ in range(20):
            answers.append((number, model(np.roll(pixels, number, axis=0))))
        seen.append(torch.get_num_threads())

    try:
        torch.set_num_threads(2)
        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1] * 4
    assert len(answers) == 80
    for number, answer in answers:
        # Neither logits nor features of one thread reach another.
        np.testing.assert_allclose(np.roll(answer.logits, -number, 0), expected.logits, atol=1e-6)
        np.testing.assert_allclose(
            np.roll(answer.features, -number, 0), expected.features, atol=1e-6
        )


def test_devices_and_dtypes() -> None:
    assert resolve_device("auto") in ("cpu", "cuda")
    for device in ("tpu", "cuda:x", "cuda:99"):
        with pytest.raises(UserError, match="device"):
            resolve_device(device)
    with pytest.raises(UserError, match="dtype 'float64'"):
        wrap(net(), dtype="float64")


@pytest.mark.parametrize("device", DEVICES)
def test_half_precision_is_another_identity(pixels: np.ndarray, device: str) -> None:
    plain, half = wrap(net(), device=device), wrap(net(), device=device, dtype="bfloat16")
    assert plain.identity == {"a": 1}
    assert half.identity == {"a": 1, "dtype": "bfloat16"}
    logits = half(pixels).logits
    assert logits.dtype == np.float32
    assert 0 < np.abs(logits - plain(pixels).logits).max() < 0.05


def test_the_hash_covers_names_dtypes_shapes_and_bytes() -> None:
    def hashed(**tensors: Any) -> str:
        module = torch.nn.Module()
        for name, tensor in tensors.items():
            module.register_buffer(name, tensor)
        return weights_hash(module)

    zeros = torch.zeros(2, 3)
    different = [
        hashed(a=zeros),
        hashed(b=zeros),
        hashed(a=zeros.reshape(3, 2)),
        hashed(a=zeros.to(torch.bfloat16)),
        hashed(a=zeros.int()),
        hashed(a=zeros + 1),
        hashed(a=zeros, b=zeros),
        hashed(a=torch.zeros(())),
        hashed(a=torch.zeros(3, dtype=torch.complex64)),
    ]
    assert len(set(different)) == len(different)
    assert hashed(a=zeros, b=zeros + 1) == hashed(b=zeros + 1, a=zeros)
    assert hashed(a=torch.arange(6.0).reshape(2, 3)) == hashed(
        a=torch.arange(6.0).reshape(2, 3).T.contiguous().T  # other strides, same values
    )


def test_seeded_weights_are_the_same_and_torchs_state_is_kept() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = weights_hash(net())
    assert torch.equal(torch.rand(3), expected)
    assert weights_hash(net()) == first
    with seeded(1):
        assert weights_hash(Net()) != first


@pytest.mark.parametrize("wrapping", ["", "state_dict", "model", "state_dict_ema"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_checkpoints_of_training_scripts_are_read(
    tmp_path: Path, wrapping: str, prefix: str
) -> None:
    module = net()
    state = {prefix + name: tensor for name, tensor in module.state_dict().items()}
    content: Any = {wrapping: state, "epoch": 3} if wrapping else state
    torch.save(content, tmp_path / "net.pth")
    with seeded(9):
        other = Net()
    load_checkpoint(other, tmp_path / "net.pth")
    assert weights_hash(other) == weights_hash(module)


def test_safetensors_are_read(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file(net().state_dict(), tmp_path / "net.safetensors")
    with seeded(9):
        other = Net()
    load_checkpoint(other, tmp_path / "net.safetensors")
    assert weights_hash(other) == weights_hash(net())


def test_a_checkpoint_with_code_is_refused_and_not_run(
    tmp_path: Path, write_hostile: Callable[[Path], Path]
) -> None:
    path = write_hostile(tmp_path / "bad.pth")
    with pytest.raises(BadFile, match=r"bad\.pth: refused: it holds more than weights"):
        read_checkpoint(path)
    assert not (tmp_path / "boom").exists()


def test_the_hostile_checkpoint_would_run_without_the_restriction(
    tmp_path: Path, write_hostile: Callable[[Path], Path]
) -> None:
    torch.load(write_hostile(tmp_path / "bad.pth"), weights_only=False)
    assert (tmp_path / "boom").exists()


def test_broken_checkpoints_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no checkpoint at"):
        read_checkpoint(tmp_path / "none.pth")
    torch.save(net().state_dict(), tmp_path / "net.pth")
    whole = (tmp_path / "net.pth").read_bytes()
    for name, content in {
        "cut.pth": whole[: len(whole) // 2],
        "empty.pth": b"",
        "noise.pth": b"\x80\x05" + bytes(range(256)),
        "noise.safetensors": bytes(range(256)),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadFile) as caught:
            read_checkpoint(tmp_path / name)
        assert "\n" not in caught.value.line
        assert name in caught.value.line


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([torch.zeros(2)], "holds no state dict"),
        ({}, "holds no state dict"),
        ({"weight": 3}, "'weight' is not a tensor"),
        (
            {"fc.weight": torch.zeros(10, 4)},
            r"another architecture .*\"conv\.weight\", \"conv\.bias",
        ),
        ({**Net().state_dict(), "x": torch.zeros(1)}, 'another architecture .*"x"'),
        ({**Net().state_dict(), "fc.bias": torch.zeros(11)}, "another architecture .*fc.bias"),
    ],
)
def test_weights_that_do_not_fit_are_refused(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "net.pth")
    with pytest.raises(BadFile, match=message):
        load_checkpoint(net(), tmp_path / "net.pth")
