"""Models of torch: a module with its preprocessing and its label space, called as any other model.

Values are computed as torchvision does it: ``(pixel / scale - mean) / std`` in float32, in that
order, so that a module sees bit for bit what its library's own transform would give it.
"""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, HeldoutError, NotApplicable, UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, existing_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import ModelOutput, check_pixels, model_output

DTYPES = ("float32", "bfloat16", "float16")
_MEMORY_MESSAGES = ("out of memory", "can't allocate memory", "not enough memory")


class TorchModel:
    """A module of torch as a :class:`~heldout.models.adapters.model.Model`.

    ``module`` takes float NCHW and gives logits (b, classes). ``classifier`` is its last layer:
    what goes into it, when that is one vector per image, is kept as the features. ``device`` is ``cpu``,
    ``cuda``, ``cuda:1`` or ``auto``; ``dtype`` is float32, bfloat16 or float16.

    On the CPU a worker thread computes with one thread of its own, so that as many images are in
    work as there are workers; the main thread keeps torch's setting. On a GPU calls take turns,
    and float32 means float32 (no TF32).
    """

    def __init__(
        self,
        module: Any,
        *,
        name: str,
        label_space: LabelSpace,
        preprocessing: Preprocessing,
        identity: Mapping[str, Any],
        classifier: Any | None = None,
        device: str = "cpu",
        dtype: str = "float32",
    ) -> None:
        torch = require_torch()
        if dtype not in DTYPES:
            raise UserError(f"dtype {dtype!r} of {name}", fix=f"use {', '.join(DTYPES)}")
        self.name = name
        self.label_space = label_space
        self.preprocessing: Preprocessing = preprocessing
        self.identity: Mapping[str, Any] = (
            identity if dtype == "float32" else {**identity, "dtype": dtype}
        )
        self.device = resolve_device(device)
        self.dtype = dtype
        self._torch = torch
        self._dtype = getattr(torch, dtype)
        self._module = (
            module.eval()
            .requires_grad_(False)
            .to(device=self.device, dtype=self._dtype, memory_format=torch.channels_last)
        )
        self._constants = self._tensors(preprocessing)
        self._on_gpu = not self.device.startswith("cpu")
        self._turn = threading.Lock()
        self._local = threading.local()
        self._classifier = classifier
        if classifier is not None:
            self._hook = classifier.register_forward_pre_hook(self._see_features)

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        """Logits (and features) of uint8 pixels (b, height, width, 3)."""
        check_pixels(pixels, self.preprocessing)
        self._use_one_thread()
        try:
            return self._run(pixels)
        except (MemoryError, RuntimeError) as error:
            if not _is_out_of_memory(error):
                raise
            raise UserError(
                f"{self.name} does not fit into the memory of {self.device} with {len(pixels)} "
                "images",
                fix="use a smaller model, dtype=bfloat16, or another device",
            ) from None

    def with_preprocessing(self, preprocessing: Preprocessing) -> TorchModel:
        """The same module behind another preprocessing; they share its memory and take turns."""
        made = copy.copy(self)
        made.preprocessing = preprocessing
        made._constants = self._tensors(preprocessing)
        return made

    @property
    def module(self) -> Any:
        """A copy of the module, without what this class hung on it; the caller's own."""
        with self._turn:
            if self._classifier is None:
                return copy.deepcopy(self._module)
            self._hook.remove()
            try:
                return copy.deepcopy(self._module)
            finally:
                self._hook = self._classifier.register_forward_pre_hook(self._see_features)

    def _tensors(self, preprocessing: Preprocessing) -> list[Any]:
        torch = self._torch
        return [
            torch.tensor(values, dtype=torch.float32, device=self.device).reshape(1, -1, 1, 1)
            for values in ([preprocessing.scale], preprocessing.mean, preprocessing.std)
        ]

    def prepare(self, pixels: np.ndarray) -> Any:
        """The module's input, a float32 tensor, from uint8 pixels (b, height, width, 3)."""
        torch = self._torch
        if not pixels.flags.writeable:
            pixels = pixels.copy()  # torch warns of arrays that it might not write to
        values = torch.from_numpy(pixels).to(self.device).permute(0, 3, 1, 2)
        if self.preprocessing.colours == "BGR":
            values = values.flip(1)
        scale, mean, std = self._constants
        # Tensors, not numbers: a GPU would multiply by the inverse of a number.
        values = values.to(torch.float32).div_(scale).sub_(mean).div_(std)
        return values if self.preprocessing.layout == "NCHW" else values.permute(0, 2, 3, 1)

    def _use_one_thread(self) -> None:
        """Let this worker thread compute alone; torch keeps the number of threads per thread."""
        if (
            self._on_gpu
            or getattr(self._local, "alone", False)
            or threading.current_thread() is threading.main_thread()
        ):
            return
        self._torch.set_num_threads(1)
        self._local.alone = True

    def _run(self, pixels: np.ndarray) -> ModelOutput:
        self._local.features = None
        with self._turn if self._on_gpu else nullcontext(), self._torch.inference_mode():
            with self._exactly():
                logits = self._module(self.prepare(pixels).to(self._dtype))
            if not isinstance(logits, self._torch.Tensor):
                raise HeldoutError(f"{self.name} returned {type(logits).__name__}, not a tensor")
            features, self._local.features = self._local.features, None
            return model_output(
                _to_numpy(logits),
                None if features is None else _to_numpy(features),
                rows=len(pixels),
                classes=len(self.label_space),
                model=self.name,
            )

    def _see_features(self, _module: Any, inputs: tuple[Any, ...]) -> None:
        # (b, d), or (b, d, 1, 1) where the last layer is a convolution after the pooling.
        if inputs and all(side == 1 for side in inputs[0].shape[2:]):
            self._local.features = inputs[0].flatten(1)

    def _exactly(self) -> AbstractContextManager[Any]:
        """On a GPU convolutions may use TF32 unless told not to; matrix products do not."""
        if not self._on_gpu or self._dtype != self._torch.float32:
            return nullcontext()
        flags: AbstractContextManager[Any] = self._torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        )
        return flags


def require_torch() -> Any:
    """The module ``torch``, or one line that says how to install it."""
    return require("torch", extra="torch", purpose="a model of torch")


def require_library(module: str, *, extra: str, purpose: str) -> Any:
    """Import a library of torch models; a build that does not fit this torch is one line too."""
    torch = require_torch()
    try:
        return require(module, extra=extra, purpose=purpose)
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
        raise UserError(
            f"the installed torchvision was built for another torch than {torch.__version__}",
            fix="install both together, from one index",
        ) from None


def resolve_device(device: str) -> str:
    """``auto`` is ``cuda`` where there is one, else ``cpu``; a GPU that is not there is refused."""
    torch = require_torch()
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind, _, place = device.partition(":")
    if kind not in ("cpu", "cuda") or (place and not place.isdigit()):
        raise UserError(f"no device {device!r}", fix="use auto, cpu, cuda or cuda:1")
    if kind == "cuda" and int(place or 0) >= torch.cuda.device_count():
        raise UserError(
            f"there is no device {device}", fix="use device=cpu, or a torch built for your GPU"
        )
    return device


def _to_numpy(tensor: Any) -> np.ndarray:
    array: np.ndarray = tensor.float().cpu().contiguous().numpy()
    return array


def _is_out_of_memory(error: BaseException) -> bool:
    # torch.OutOfMemoryError is a RuntimeError; allocators of the CPU raise plain ones.
    return isinstance(error, MemoryError) or any(
        message in str(error).lower() for message in _MEMORY_MESSAGES
    )


# Where training scripts keep the weights inside a checkpoint; an average of weights comes first,
# as in timm.
_NESTED = ("state_dict_ema", "model_ema", "state_dict", "model")
_PREFIXES = ("module.", "_orig_mod.")
_FORCE, _FORCE_NOT = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"


def weights_hash(module: Any) -> str:
    """SHA-256 over the state dict: sorted names, and each tensor's dtype, shape and bytes."""
    torch = require_torch()
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):
            raise NotApplicable(
                f"{name} in the weights is not a tensor", fix="use a plain, unquantised model"
            )
        head = canonical_json([name, str(tensor.dtype), list(tensor.shape)])
        digest.update(f"{len(head)}:{head}".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        values = torch.view_as_real(values) if values.is_complex() else values
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The tensors of a ``.safetensors`` file or of a file that torch saved, by name.

    The pickle in torch's files is read with torch's restricted loader: one that names anything
    but tensors and plain containers is refused, and nothing in it is run.
    """
    existing_file(path, "checkpoint")
    if path.suffix == ".safetensors":
        loader = require("safetensors.torch", extra="torch", purpose=f"reading {path.name}")
        try:
            return dict(loader.load_file(path, device="cpu"))
        except Exception as error:  # the reader has its own error class for every broken file
            raise _unreadable(path, error) from None
    torch = require_torch()
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise BadFile(
            path,
            f"refused: it holds more than weights ({_first_line(error)})",
            fix="save only the state dict, best as .safetensors",
        ) from None
    except Exception as error:  # a broken file can raise anything; nothing of it was run
        raise _unreadable(path, error) from None
    return _tensors(path, found)


def _tensors(path: Path, found: Any) -> dict[str, Any]:
    torch = require_torch()
    for key in _NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
            break
    if not isinstance(found, Mapping) or not found:
        raise BadFile(path, "holds no state dict", fix="save model.state_dict()")
    tensors: dict[str, Any] = {}
    for name, tensor in found.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise BadFile(path, f"{name!r} is not a tensor", fix="save model.state_dict()")
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        tensors[name] = tensor
    return tensors


def load_checkpoint(module: Any, path: Path) -> None:
    """Put the weights of a file into a module; names and shapes must all fit."""
    try:
        module.load_state_dict(read_checkpoint(path), strict=True)
    except RuntimeError as error:
        raise other_architecture(path, error) from None


def other_architecture(path: Path, error: Exception) -> BadFile:
    """The error for weights that a module refused; torch's second line names the first of them."""
    lines = str(error).strip().splitlines()
    return BadFile(
        path,
        f"is of another architecture ({(lines[1:] or lines)[0].strip()[:200]})",
        fix="name the architecture that these weights were trained with, and num_classes if the "
        "classes are your own",
    )


@contextmanager
def fetching(name: str) -> Iterator[None]:
    """While a library fetches and loads weights: nothing in them is run, and failures are one line.

    Some libraries still unpickle what they fetch without restriction; torch's own switch forbids
    it for as long as the block lasts.
    """
    before = {key: os.environ.pop(key, None) for key in (_FORCE, _FORCE_NOT)}
    os.environ[_FORCE] = "1"
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise _why_not_fetched(name, error) or error from None
    finally:
        for key, value in before.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random weights made inside the block depend on ``seed`` alone; torch's own state is kept."""
    torch = require_torch()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def _why_not_fetched(name: str, error: BaseException) -> UserError | None:
    """What the user can do about an error while fetching; None for one that is a fault."""
    import httpx

    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, pickle.UnpicklingError):
            return UserError(
                f"the weights of {name} were refused: they hold more than weights "
                f"({_first_line(behind)})",
                fix="give others with --model-args checkpoint=FILE",
            )
        if isinstance(behind, OSError | httpx.HTTPError):
            return UserError(
                f"the weights of {name} could not be fetched ({_first_line(error)})",
                fix="connect to the network once, or give them with --model-args checkpoint=FILE",
            )
        behind = behind.__cause__ or behind.__context__
    return None


def _unreadable(path: Path, error: BaseException) -> BadFile:
    return BadFile(
        path, f"cannot be read as weights ({_first_line(error)})", fix="fetch or save it again"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
