"""Fused convolutions give the plain model's logits, and models that cannot be fused stay as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from heldout.data.images.preprocessing import Geometry, Preprocessing
from heldout.models.gpu.network import (
    Network,
    arithmetic,
    fuse_convolutions,
    output_shape,
)
from tests.torch.gpu_case import DEVICE

GEOMETRY = Geometry(resize_height=40, crop_height=32, crop_width=32)


def settled(module: nn.Module) -> nn.Module:
    """In evaluation mode, with BatchNorm statistics that are not the identity."""
    torch.manual_seed(7)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.5)
            layer.running_var.uniform_(0.3, 3)
            if layer.affine:
                layer.weight.data.uniform_(0.5, 1.5)
                layer.bias.data.normal_(0, 0.5)
    return module.eval().requires_grad_(False)


def kinds(module: nn.Module) -> list[str]:
    return [type(part).__name__ for part in module.modules() if not list(part.children())]


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def assert_same(module: nn.Module, rewritten: Any, *shape: int) -> None:
    given = images(*(shape or (3, 3, 20, 24))).to(DEVICE)
    module.to(DEVICE)
    rewritten.to(DEVICE)
    with arithmetic(), torch.inference_mode():
        expected, found = module(given.clone()), rewritten(given.clone())
    assert expected.std() > 0
    assert (found - expected).norm() < 1e-5 * expected.norm()


class Block(nn.Module):
    """A residual block; the sum and the ReLU in any of the ways that libraries write them."""

    def __init__(self, add: str, relu: str, *, stride: int = 2, side: bool = True) -> None:
        super().__init__()
        self.add, self.how = add, relu
        self.conv1 = nn.Conv2d(8, 8, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, 1, 2, dilation=2, groups=2)
        self.bn2 = nn.BatchNorm2d(8, eps=1e-3)
        self.side = (
            nn.Sequential(nn.Conv2d(8, 8, 1, stride, bias=False), nn.BatchNorm2d(8, affine=False))
            if side
            else nn.Identity()
        )
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        z = self.side(x)
        if self.add == "left":
            y = y + z
        elif self.add == "right":
            y = z + y
        elif self.add == "in place":
            y += z
        elif self.add == "into the shortcut":
            z += y
            y = z
        elif self.add == "torch":
            y = torch.add(y, z)
        else:
            y = y.add_(z)
        return {
            "module": self.act,
            "function": nn.functional.relu,
            "torch": torch.relu,
            "method": lambda v: v.relu_(),
        }[self.how](y)


@pytest.mark.parametrize(
    "add", ["left", "right", "in place", "into the shortcut", "torch", "method"]
)
@pytest.mark.parametrize("relu", ["module", "function", "torch", "method"])
@pytest.mark.parametrize("side", [True, False])
def test_a_residual_block_is_three_kernels(add: str, relu: str, side: bool) -> None:
    block = settled(Block(add, relu, stride=2 if side else 1, side=side))
    rewritten = fuse_convolutions(block)
    assert rewritten is not None
    assert_same(block, rewritten, 3, 8, 20, 24)
    assert kinds(rewritten) == ["FusedConvolution"] * (3 if side else 2)


def test_bias_and_no_batchnorm() -> None:
    module = settled(
        nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.Dropout(0.5),
            nn.Identity(), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 5),
        )
    )  # fmt: skip
    rewritten = fuse_convolutions(module)
    assert rewritten is not None
    assert kinds(rewritten).count("FusedConvolution") == 2
    assert "ReLU" not in kinds(rewritten)
    assert_same(module, rewritten)


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "googlenet", "squeezenet1_0"])
def test_models_of_torchvision(name: str) -> None:
    from torchvision import models

    make = getattr(models, name)
    made = make(weights=None, **({"init_weights": False} if name == "googlenet" else {}))
    module = settled(made)
    rewritten = fuse_convolutions(module)
    assert rewritten is not None
    if name.startswith("resnet"):
        convolutions = sum(isinstance(part, nn.Conv2d) for part in module.modules())
        assert kinds(rewritten).count("FusedConvolution") == convolutions
    assert_same(module, rewritten, 2, 3, 64, 64)


@pytest.mark.parametrize("name", ["resnet50d", "seresnet50"])
def test_models_of_timm(name: str) -> None:
    import timm

    module = settled(timm.create_model(name, pretrained=False))
    rewritten = fuse_convolutions(module)
    assert rewritten is not None
    assert_same(module, rewritten, 2, 3, 64, 64)


class Reused(nn.Module):
    """What a convolution gives is used twice: it has to stay."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        z = torch.relu(self.bn(y))
        return z - y


class WrittenBetween(nn.Module):
    """The input of the convolution changes before its ReLU is due."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        x.mul_(2)
        return torch.relu(y) + x.mean()


class Deciding(nn.Module):
    """A step that depends on the values."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.conv(x)) if x.mean() > 0 else x


@pytest.mark.parametrize(
    "module",
    [
        Reused(),
        WrittenBetween(),
        Deciding(),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.SiLU()),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding="same"), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Linear(48, 4), nn.ReLU()),
    ],
    ids=lambda module: type(module).__name__,
)
def test_what_cannot_be_fused_is_left_alone(module: nn.Module) -> None:
    for layer in module.modules():
        layer.training = False
    assert fuse_convolutions(module) is None


def test_hooks_and_training_are_left_alone() -> None:
    module = settled(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()))
    assert fuse_convolutions(module) is not None
    handle = module[0].register_forward_hook(lambda *_: None)
    assert fuse_convolutions(module) is None
    handle.remove()
    assert fuse_convolutions(module) is not None
    assert fuse_convolutions(module.train()) is None


def test_the_model_itself_does_not_change() -> None:
    module = settled(Block("in place", "module"))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    given = images(2, 8, 12, 12)
    with torch.inference_mode():
        expected = module(given)
    fuse_convolutions(module)
    after = module.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.inference_mode():
        assert torch.equal(module(given), expected)


def test_unequal_shapes_are_not_summed() -> None:
    class Broadcast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 8, 3)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.conv(x) + x.mean((1, 2, 3), keepdim=True))

    module = settled(Broadcast())
    rewritten = fuse_convolutions(module)
    assert rewritten is not None
    with pytest.raises(ValueError, match="unequal shapes"):
        rewritten(images(2, 3, 9, 9))
    assert not network(module).fused


@pytest.mark.parametrize("stride, padding, dilation", [(1, 0, 1), (2, 3, 1), ((1, 3), (2, 0), 2)])
def test_output_shape(stride: Any, padding: Any, dilation: Any) -> None:
    convolution = nn.Conv2d(3, 4, (3, 5), stride, padding, dilation)
    given = images(2, 3, 31, 40)
    assert output_shape(given.shape, convolution.weight, convolution) == convolution(given).shape


class Classifying(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 8, 5, 4, bias=False), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 49, 10)
        self.scale = scale

    def forward(self, x: Any) -> Any:
        return self.fc(torch.relu(self.bn(self.conv(x))).flatten(1))


def network(module: nn.Module, **options: Any) -> Network:
    model = SimpleNamespace(
        name="m", module=module, preprocessing=Preprocessing(geometry=GEOMETRY)
    )  # fmt: skip
    return Network(model, DEVICE, **options)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float32"])
def test_a_network_takes_the_fused_model(precision: Any) -> None:
    module = settled(Classifying())
    pixels = torch.randint(0, 256, (6, 32, 32, 3), dtype=torch.uint8, device=DEVICE)
    quick = network(module, precision=precision)
    plain = network(module, precision=precision, fuse=False)
    assert quick.fused and not plain.fused
    torch.testing.assert_close(quick.fast(pixels)[0], plain.fast(pixels)[0], rtol=0.02, atol=0.02)
    assert torch.equal(quick.exact(pixels), plain.exact(pixels))


def test_a_network_keeps_the_plain_model_where_folding_overflows() -> None:
    """BatchNorm divides by next to nothing: the folded weight has no place in half precision."""
    module = settled(Classifying())
    module.conv.weight.mul_(1e-4)
    module.bn.running_mean.zero_()
    module.bn.running_var.fill_(1e-20)
    module.bn.eps = 1e-20
    module.bn.weight.fill_(1.0)
    assert not network(module, precision="float16").fused
    assert network(module, precision="float32").fused
