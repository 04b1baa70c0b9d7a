"""Weights of torch models: read without running code, told apart by their bytes."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heldout.core.errors import BadFile, NotApplicable, UserError
from heldout.core.extras import require
from heldout.core.files import canonical_json, existing_file
from heldout.models.adapters.torch_model import require_torch

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
                f"{name} in the weights is no tensor", fix="use a plain, unquantised model"
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
            raise BadFile(path, f"{name!r} is no tensor", fix="save model.state_dict()")
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        tensors[name] = tensor
    return tensors


def load_checkpoint(module: Any, path: Path) -> None:
    """Put the weights of a file into a module; names and shapes must all fit."""
    fill_module(module, read_checkpoint(path), path)


def fill_module(module: Any, tensors: Mapping[str, Any], path: Path) -> None:
    """Put tensors, read from ``path``, into a module; names and shapes must all fit."""
    own = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
    other = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    missing, unknown = sorted(set(own) - set(other)), sorted(set(other) - set(own))
    if missing or unknown:
        what = f"lacks {missing[0]}" if missing else f"has {unknown[0]}"
        count = len(missing) + len(unknown)
        raise BadFile(
            path,
            f"is of another architecture: it {what} ({count} names differ)",
            fix="name the architecture that these weights were trained with",
        )
    wrong = next((name for name in sorted(own) if own[name] != other[name]), None)
    if wrong is not None:
        raise BadFile(
            path,
            f"is of another architecture: {wrong} has shape {other[wrong]}, not {own[wrong]}",
            fix="name the architecture, and give num_classes if the classes are your own",
        )
    module.load_state_dict(dict(tensors), strict=True)


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
