"""A torch classifier along both paths: half precision for all images, float32 for the rechecked."""

from __future__ import annotations

import contextlib
import copy
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from heldout.data.images.preprocessing import Preprocessing

if TYPE_CHECKING:
    import torch
    from torch import fx


class Folded(NamedTuple):
    """A convolution with its BatchNorm inside: float32 weight and bias, and the ``node`` whose value
    this is."""

    node: fx.Node
    convolution: fx.Node
    weight: Any
    bias: Any
    source: torch.nn.Conv2d
    images: fx.Node


def fuse_convolutions(module: torch.nn.Module) -> torch.nn.Module | None:
    """The same function with fused convolutions; None where there is nothing to fuse or no trace.

    ``module`` is in float32 and in evaluation mode, and stays as it is. A model in training, with
    hooks, or whose steps depend on its input, is left alone.
    """
    from torch import fx

    hooks = (part._forward_hooks or part._forward_pre_hooks for part in module.modules())
    if module.training or any(hooks):
        return None
    try:
        traced = fx.symbolic_trace(copy.deepcopy(module))
    except Exception:  # whatever a model does that cannot be followed, it can do by itself
        return None
    traced.eval()
    _drop_identities(traced)
    done = 0
    for node in list(traced.graph.nodes):
        chain = _chain(traced, node)
        if chain is not None:
            _replace(traced, node, *chain, f"fused_{done}")
            done += 1
    if not done:
        return None
    traced.delete_all_unused_submodules()
    traced.graph.lint()
    traced.recompile()
    return traced.requires_grad_(False)


def _distance(found: Any, truth: Any) -> float:
    """||found - truth|| / ||truth||; infinite where anything is not a number."""
    value = float((found.float() - truth).norm() / truth.norm())
    return value if math.isfinite(value) else math.inf


def fused_convolution(
    weight: Any, bias: Any, source: torch.nn.Conv2d, *, relu: bool = True
) -> torch.nn.Module:
    """A module of one call, ``relu(w * x + b)`` or, given a second input, ``relu(w * x + z + b)``."""
    import torch

    shape = (source.stride, source.padding, source.dilation, source.groups)

    class FusedConvolution(torch.nn.Module):  # type: ignore[misc]
        weight: Any
        bias: Any

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", weight)
            self.register_buffer("bias", bias)
            self.refused = False

        def forward(self, x: Any, z: Any = None) -> Any:
            if not relu:
                return torch.nn.functional.conv2d(x, self.weight, self.bias, *shape)
            if z is not None and tuple(z.shape) != output_shape(x.shape, self.weight, source):
                raise ValueError(f"a sum of unequal shapes, {tuple(z.shape)} the second")
            if x.is_cuda and not self.refused:
                try:
                    if z is None:
                        return torch.cudnn_convolution_relu(x, self.weight, self.bias, *shape)
                    return torch.cudnn_convolution_add_relu(
                        x, self.weight, z, 1.0, self.bias, *shape
                    )
                except torch.OutOfMemoryError:
                    raise
                except RuntimeError:  # cuDNN has no such kernel for this layer
                    self.refused = True
            found = torch.nn.functional.conv2d(x, self.weight, self.bias, *shape)
            return (found if z is None else found.add_(z)).relu_()

    return FusedConvolution()


def output_shape(images: Any, weight: Any, source: torch.nn.Conv2d) -> tuple[int, ...]:
    """The shape of a convolution's output."""
    sides = zip(
        images[2:], weight.shape[2:], source.stride, source.padding, source.dilation, strict=True
    )
    return (
        images[0],
        weight.shape[0],
        *((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in sides),
    )


# --------------------------------------------------------------------------- finding


def _drop_identities(traced: fx.GraphModule) -> None:
    """Take out what does nothing outside of training, so that it stands between nothing."""
    import torch

    nothing = (torch.nn.Identity, torch.nn.Dropout, torch.nn.Dropout2d)
    for node in list(traced.graph.nodes):
        if type(_module(traced, node)) in nothing and len(node.args) == 1 and not node.kwargs:
            node.replace_all_uses_with(node.args[0])
            traced.graph.erase_node(node)


def _chain(traced: fx.GraphModule, last: fx.Node) -> tuple[Folded, fx.Node | None] | None:
    """What becomes one call that ends with this node: a convolution, and what is added to it."""
    if not _is_relu(traced, last):
        return None
    value: Any = last.args[0]
    main, shortcut = _folded(traced, value), None
    if main is None and _is_sum(value) and len(value.users) == 1:
        left, right = value.args
        # In place the left one is written to: that must be a convolution's output.
        sides = [(left, right)] if _in_place(traced, value) else [(left, right), (right, left)]
        for one, other in sides:
            main = None if one is other else _folded(traced, one)
            if main is not None:
                shortcut = other
                break
    if main is None or _disturbed(traced, main, last):
        return None
    return main, shortcut


def _folded(traced: fx.GraphModule, node: Any) -> Folded | None:
    """The convolution, with or without BatchNorm, that makes this value and nothing else."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_weights

    norm = _module(traced, node)
    value = node
    if type(norm) is torch.nn.BatchNorm2d:
        if len(node.users) != 1 or norm.running_mean is None or norm.running_var is None:
            return None
        value = node.args[0]
    else:
        norm = None
    source = _module(traced, value)
    if type(source) is not torch.nn.Conv2d or len(value.users) != 1 or value.kwargs:
        return None
    if source.padding_mode != "zeros" or isinstance(source.padding, str):
        return None
    weight, bias = source.weight, source.bias
    if norm is not None:
        weight, bias = fuse_conv_bn_weights(
            weight, bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
        )
    if bias is None:
        bias = torch.zeros(source.out_channels, dtype=weight.dtype, device=weight.device)
    return Folded(
        node, value, weight.detach().clone(), bias.detach().clone(), source, value.args[0]
    )


def _disturbed(traced: fx.GraphModule, main: Folded, last: fx.Node) -> bool:
    """Whether anything else is written in place between a convolution and the end of its chain."""
    node: Any = main.convolution
    while (node := node.next) is not last:
        if node is not last.args[0] and _in_place(traced, node):
            return True
    return False


def _replace(
    traced: fx.GraphModule, last: fx.Node, main: Folded, shortcut: fx.Node | None, name: str
) -> None:
    """One call in the place of the nodes from a convolution to ``last``."""
    graph, bias = traced.graph, main.bias
    gone = [last, last.args[0], main.node, main.convolution]
    other = None if shortcut is None else _folded(traced, shortcut)
    if other is not None:
        # Its bias is added where the two meet: a bias of its own would be a kernel of its own.
        bias = bias + other.bias
        alone = fused_convolution(other.weight, None, other.source, relu=False)
        traced.add_submodule(f"{name}_shortcut", alone)
        with graph.inserting_before(other.convolution):
            shortcut = graph.call_module(f"{name}_shortcut", (other.images,))
        gone += [other.node, other.convolution]
    traced.add_submodule(name, fused_convolution(main.weight, bias, main.source))
    inputs = (main.images,) if shortcut is None else (main.images, shortcut)
    with graph.inserting_before(last):
        last.replace_all_uses_with(graph.call_module(name, inputs))
    for node in dict.fromkeys(gone):
        graph.erase_node(node)


def _module(traced: fx.GraphModule, node: Any) -> Any:
    """The module that a node calls; None if it calls none."""
    if getattr(node, "op", "") != "call_module":
        return None
    return traced.get_submodule(str(node.target))


def _is_relu(traced: fx.GraphModule, node: fx.Node) -> bool:
    import torch

    functions = (torch.relu, torch.relu_, torch.nn.functional.relu, torch.nn.functional.relu_)
    return type(_module(traced, node)) is torch.nn.ReLU or _calls(
        node, functions, ("relu", "relu_")
    )


def _is_sum(node: Any) -> bool:
    import torch

    if not _calls(node, (operator.add, operator.iadd, torch.add), ("add", "add_")):
        return False
    return len(node.args) == 2 and not node.kwargs and all(hasattr(a, "op") for a in node.args)


def _calls(node: Any, functions: Sequence[Callable[..., Any]], methods: Sequence[str]) -> bool:
    """Whether a node calls one of some functions or methods."""
    called = {"call_function": functions, "call_method": methods}.get(getattr(node, "op", ""), ())
    return bool(called) and node.target in called


def _in_place(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node may write into its input."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if node.op == "call_module":
        return bool(getattr(_module(traced, node), "inplace", False))
    if node.op in ("call_function", "call_method"):
        written = name.endswith("_") and not name.endswith("__")
        return written or name in ("iadd", "isub", "imul", "setitem") or "inplace" in node.kwargs
    return False


FLOAT16_MAX = 65504.0
_PROBE = 8  # images that a rewritten model is compared on


class Network:
    """One classifier on one device. Both copies of the weights stay on the device.

    ``model``  has a name, its preprocessing, and a torch module that turns normalised float images
               (b, 3, h, w) into logits (b, classes)
    ``fuse``  replace chains of a convolution and what follows it by one kernel each, where the
              model allows it; ``fused`` says whether it did
    """

    def __init__(
        self,
        model: Any,
        device: str,
        *,
        precision: str = "float16",
        fuse: bool = True,
        k: int = 5,
    ) -> None:
        import torch

        self.name = model.name
        self.preprocessing: Preprocessing = model.preprocessing
        self.device = device
        self.k = k
        self._type = getattr(torch, precision)
        module = copy.deepcopy(model.module).eval().requires_grad_(False)
        values = model.preprocessing
        # Tensors, not numbers: a GPU would multiply by the inverse of a number.
        self._values = tuple(
            torch.tensor(v, dtype=torch.float32, device=device)
            for v in ([values.scale], values.mean, values.std)
        )
        self._reverse = values.colours == "BGR"
        rewritten = fuse_convolutions(module) if fuse else None
        plain = self._reduced(copy.deepcopy(module))
        # Without tensor cores torch's default layout is a sixth faster than channels last.
        self._exact = module.to(device, torch.float32)
        self.fused = rewritten is not None and self._no_worse(self._reduced(rewritten), plain)
        self._fast: Any = rewritten if self.fused else plain

    def fast(self, pixels: Any) -> tuple[Any, Any, Any]:
        """Run a batch of uint8 pixels (b, h, w, 3) in reduced precision. On the device: logits
        float16 (b, classes), top k int32 (b, k), margin float32 (b,)."""
        import torch

        with torch.inference_mode():
            images = _normalised(pixels, self._values, self._type, self._reverse)
            return _best(self._fast(images), self.k)

    def _reduced(self, module: Any) -> Any:
        import torch

        return module.to(self.device, self._type, memory_format=torch.channels_last)

    def _no_worse(self, candidate: Any, plain: Any) -> bool:
        """Whether a rewritten model is about as near to the exact one as the plain one, on a few
        images.

        ``plain`` makes the plain one, which is asked only where the candidate is further off than a
        few steps of the precision. Folding may leave the range of half precision, and a trace may
        have followed what held for it alone.
        """
        import torch

        geometry = self.preprocessing.geometry
        pixels = _probe(geometry.crop_height, geometry.crop_width).to(self.device)
        enough = 4 * torch.finfo(self._type).eps
        with arithmetic(), torch.inference_mode():
            truth = self.exact(pixels)
            images = _normalised(pixels, self._values, self._type, self._reverse)
            try:
                mine = _distance(candidate(images), truth)
            except torch.OutOfMemoryError:
                raise
            except (RuntimeError, ValueError, TypeError):
                return False
            if mine <= enough:
                return True
            return mine < math.inf and mine <= 2 * _distance(plain(images), truth) + enough

    def exact(self, pixels: Any) -> Any:
        """Logits float32 (b, classes), without TF32."""
        import torch

        with torch.inference_mode():
            images = _normalised(pixels, self._values, torch.float32, self._reverse)
            return self._exact(images.contiguous()).float()


@contextlib.contextmanager
def arithmetic() -> Iterator[None]:
    """Float32 means float32 (no TF32) and convolutions are chosen without trial, while it lasts.

    These switches belong to the process; half precision does not notice the first. Trials take
    seconds in every new thread, as cuDNN's choices are kept per thread, and gain next to nothing.
    """
    import torch

    cudnn, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = (cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32)
    cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32 = False, False, False
    try:
        yield
    finally:
        cudnn.allow_tf32, cudnn.benchmark, products.allow_tf32 = before


def _normalised(pixels: Any, values: tuple[Any, ...], dtype: Any, reverse: bool) -> Any:
    """Values as torchvision computes them, in float32, then rounded once to ``dtype``; a view as
    (b, 3, h, w) in channels-last order."""
    scale, mean, std = values
    images = pixels.flip(3) if reverse else pixels
    return ((images.float() / scale - mean) / std).to(dtype).permute(0, 3, 1, 2)


def _probe(height: int, width: int) -> Any:
    """A few images, uint8 (n, height, width, 3): colours that change slowly, and some noise."""
    import torch

    source = torch.Generator().manual_seed(0)
    coarse = torch.rand((_PROBE, 3, 8, 8), generator=source)
    smooth = torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear")
    noise = torch.rand(smooth.shape, generator=source) - 0.5
    return ((smooth + noise / 4).clamp(0, 1) * 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


def _best(logits: Any, k: int) -> tuple[Any, Any, Any]:
    import torch

    stored = logits.float().clamp(-FLOAT16_MAX, FLOAT16_MAX).to(torch.float16)
    # Of what is stored, and stable: equal logits keep the order of the classes.
    values, order = torch.sort(stored.float(), dim=1, descending=True, stable=True)
    margin = values[:, 0] - values[:, 1]
    # A number that overflowed says nothing about its row: no margin is large enough for it.
    margin = margin.masked_fill(~torch.isfinite(logits).all(1), float("nan"))
    return stored, order[:, :k].to(torch.int32), margin
