"""Models and encoders by name: what ``-m`` and ``--encoder`` arguments mean.

Models:

=========================  ====================================================================
``lite0``                  built in: ``lite0``, ``lite1``, ``lite2``
``onnx:model.onnx``        an ONNX file with a sidecar
``timm:NAME``              a model of timm; likewise ``torchvision:``, ``cadene:``
``open_clip:ARCH/TAG``     zero-shot with open_clip
``path/file.py:object``    your own function, model, or function that returns one
``predictions:PATH``       outputs that another program wrote; read, not run
``NAME``, ``NAME:...``     a plug-in: an entry point of the group ``heldout.models``
``all``, ``lite*``, ...    the installed built-in models; patterns over names and files
=========================  ====================================================================

Encoders:

=========================  ====================================================================
``conse``                  a classifier and MiniLM, from packages alone; also ``conse:lite1``, …
``open_clip:ARCH/TAG``     both towers of a model of open_clip
``path/file.py:object``    your own encoder, or a function that returns one
``fake``                   colours and colour names, for tests and examples
=========================  ====================================================================

A plug-in is a model, or returns one, or has ``load(name, **model_args) -> Model`` and
``names() -> tuple[str, ...]``. Naming models imports none of the libraries behind them.
"""

from __future__ import annotations

import difflib
import fnmatch
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, TypeVar

from heldout.core.errors import NotFound, UserError
from heldout.core.files import existing_file
from heldout.core.plugins import load_object, plugins
from heldout.models.adapters import user_code
from heldout.models.adapters.efficientnet_lite import VARIANTS, load
from heldout.models.adapters.efficientnet_lite import names as installed_built_ins
from heldout.models.adapters.model import Encoder, Model

T = TypeVar("T")
GROUP = "heldout.models"
_HERE = "heldout.models.adapters"
MODELS: dict[str, str] = {
    "onnx": f"{_HERE}.onnx:load",
    "timm": f"{_HERE}.torch_zoo:load_timm",
    "torchvision": f"{_HERE}.torch_zoo:load_torchvision",
    "cadene": f"{_HERE}.torch_zoo:load_cadene",
    "open_clip": f"{_HERE}.open_clip:load",
}
"""Prefix -> ``load(name, **model_args)``, imported when a model of that prefix is loaded."""
_NAMES: dict[str, str] = {
    "timm": f"{_HERE}.torch_zoo:timm_names",
    "torchvision": f"{_HERE}.torch_zoo:torchvision_names",
    "cadene": f"{_HERE}.torch_zoo:cadene_names",
    "open_clip": f"{_HERE}.open_clip:names",
}
_ENCODERS: dict[str, str] = {
    "conse": f"{_HERE}.text_encoders:load",
    "open_clip": f"{_HERE}.open_clip:load_encoder",
    "fake": "heldout.testing.encoder:load",
}
_FILES = ("onnx", "predictions")
_USER_CODE = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)\Z")


@dataclass(frozen=True)
class PredictionFile:
    """Stands for a model whose outputs are in a file already: ``predictions:PATH``."""

    name: str
    path: Path


def load_models(
    arguments: Sequence[str], *, model_args: Mapping[str, Any] | None = None
) -> list[Model | PredictionFile]:
    """The models that arguments mean, each once, in the order of the arguments."""
    return [load_model(argument, **(model_args or {})) for argument in expand(arguments)]


def load_model(name: str, /, **model_args: Any) -> Model | PredictionFile:
    """The model of one name, without patterns; ``model_args`` go to its adapter."""
    if name in VARIANTS:
        return _call(load, [name], name, model_args)
    if _USER_CODE.match(name):
        return user_code.load(name, **model_args)
    prefix, colon, rest = name.partition(":")
    if prefix == "predictions" and rest:
        path = Path(rest)
        if not path.exists():
            raise NotFound(f"no predictions at {path}", fix="check the path")
        return PredictionFile(path.stem if path.is_file() else path.name, path)
    if prefix in MODELS and rest:
        adapter: Callable[..., Model] = load_object(MODELS[prefix])
        return _call(adapter, [rest], name, model_args)
    point = _plugins().get(prefix)
    if point is None:
        raise _unknown(name)
    found = point.load()
    if hasattr(found, "load") and hasattr(found, "names"):
        if not rest:
            raise UserError(f"the plug-in {name!r} offers many models", fix=f"write {name}:NAME")
        family: Callable[..., Model] = found.load
        return _call(family, [rest], name, model_args)
    if colon:
        raise UserError(f"the plug-in {point.name!r} is one model", fix=f"write {point.name}")
    identity = {"plugin": point.value, "version": point.dist.version if point.dist else None}
    return user_code.as_model(found, model_args, where=name, identity=identity)


def load_encoder(name: str, /, **encoder_args: Any) -> Encoder:
    """The encoder of one name; ``encoder_args`` go to its adapter."""
    match = _USER_CODE.match(name)
    if match:
        return _user_encoder(Path(match[1]), match[2], name, encoder_args)
    prefix, _, rest = name.partition(":")
    if prefix not in _ENCODERS or not (rest or prefix in ("conse", "fake")):
        known = ["conse", "conse:lite1", "open_clip:ARCH/TAG", "file.py:object"]
        near = difflib.get_close_matches(name, known, n=1)
        raise NotFound(f"no encoder {name!r}", fix=f"use {' or '.join(near) or ', '.join(known)}")
    adapter: Callable[..., Encoder] = load_object(_ENCODERS[prefix])
    return _call(adapter, [rest] if rest else [], name, encoder_args, "encoder")


def _user_encoder(
    path: Path, attribute: str, name: str, encoder_args: Mapping[str, Any]
) -> Encoder:
    found = user_code.load_object(existing_file(path, "Python file"), attribute)
    ready = isinstance(found, Encoder) and not isinstance(found, type)
    if ready and encoder_args:
        raise UserError(f"{name} takes no encoder arguments", fix="name a function that returns it")
    if not ready and callable(found):
        found = _call(found, [], name, encoder_args, "encoder")
    if not isinstance(found, Encoder):
        raise UserError(
            f"{name} is not an encoder",
            fix="see heldout.models.adapters.Encoder for what it must have",
        )
    return found


def _call(
    load: Callable[..., T],
    given: Sequence[str],
    name: str,
    arguments: Mapping[str, Any],
    what: str = "model",
) -> T:
    """What ``load`` returns; arguments that it does not take are refused with those that it takes."""
    signature = inspect.signature(load)
    try:
        signature.bind(*given, **arguments)
    except TypeError:
        takes = ", ".join(list(signature.parameters)[len(given) :])
        raise UserError(
            f"{name} does not take the {what} arguments {', '.join(arguments)}",
            fix=f"it takes {takes or 'none'}",
        ) from None
    return load(*given, **arguments)


def expand(arguments: Sequence[str]) -> list[str]:
    """Names without ``all`` and patterns, each once, in order; nothing is loaded."""
    found: dict[str, None] = {}
    for argument in arguments:
        found |= dict.fromkeys(_expand_one(argument))
    return list(found)


def list_models(pattern: str = "*") -> tuple[str, ...]:
    """Names that match: installed built-in models and plug-ins, or an adapter's (``timm:*``)."""
    prefix, colon, rest = pattern.partition(":")
    if not colon:
        known = (*installed_built_ins(), *_plugins())
        return tuple(sorted(name for name in known if fnmatch.fnmatchcase(name, pattern)))
    if prefix in _FILES:
        root = Path(Path(rest).anchor)
        paths = sorted(root.glob(str(Path(rest).relative_to(root))))
        return tuple(f"{prefix}:{path.as_posix()}" for path in paths)
    if prefix in _NAMES:
        names = load_object(_NAMES[prefix])
    else:
        point = _plugins().get(prefix)
        names = getattr(point.load(), "names", None) if point is not None else None
    if names is None:
        raise _unknown(pattern)
    return tuple(f"{prefix}:{n}" for n in sorted(names()) if fnmatch.fnmatchcase(n, rest))


def can_be_run(text: str) -> bool:
    """Whether a text names a model to run; others may name stored predictions.

    >>> can_be_run("lite0"), can_be_run("onnx:model.onnx"), can_be_run("mine.py:predict")
    (True, True, True)
    >>> can_be_run("resnet50"), can_be_run("lite0@7e5a7305e88a"), can_be_run("all")
    (False, False, False)
    """
    if text in VARIANTS or _USER_CODE.match(text):
        return True
    prefix, colon, rest = text.partition(":")
    if colon and rest and prefix in (*MODELS, "predictions"):
        return True
    return prefix in list_models() and "@" not in text


def parse_model_args(given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments of models; a text is JSON if it can be read as such.

    >>> parse_model_args({"pretrained": "false", "checkpoint": "best.pt", "sizes": "[1, 2]"})
    {'pretrained': False, 'checkpoint': 'best.pt', 'sizes': [1, 2]}
    """
    made: dict[str, Any] = {}
    for key, value in (given or {}).items():
        if not key.isidentifier():
            raise UserError(f"model argument {key!r}", fix="write key=value")
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            raise UserError(f"model argument {key!r} is given twice", fix="give it once")
        made[key] = value
        if isinstance(value, str):
            with suppress(json.JSONDecodeError, RecursionError):
                made[key] = json.loads(value)
    return made


def _expand_one(argument: str) -> tuple[str, ...]:
    if argument == "all":
        return installed_built_ins() or ("lite0",)  # the latter to say what to install
    is_pattern = any(sign in argument for sign in "*?[")
    if not is_pattern or _USER_CODE.match(argument):
        return (argument,)
    prefix, colon, rest = argument.partition(":")
    is_file = bool(colon) and prefix in _FILES
    if is_file and Path(rest).exists():
        return (argument,)
    found = list_models(argument)
    if not found:
        raise NotFound(f"no {'files' if is_file else 'models'} match {argument!r}", fix=_offer())
    return found


def _plugins() -> dict[str, EntryPoint]:
    return plugins(GROUP, "model", reserved=(*VARIANTS, *MODELS, "predictions", "all"))


def _unknown(name: str) -> NotFound:
    suffix = Path(name).suffix
    prefix, colon, rest = name.partition(":")
    known = [*VARIANTS, *_plugins(), *(f"{p}:" for p in (*MODELS, "predictions"))]
    near = difflib.get_close_matches(f"{prefix}:" if colon else name, known, n=3, cutoff=0.5)
    shown = [f"{item}{rest}" if item.endswith(":") else item for item in near]
    if suffix == ".onnx":
        fix = f"an ONNX file is named onnx:{name}"
    elif suffix == ".py":
        fix = f"name an object in it, such as {name}:predict"
    else:
        fix = f"did you mean {' or '.join(shown)}" if shown else _offer()
    return NotFound(f"no model {name!r}", fix=fix)


def _offer() -> str:
    names = ", ".join([*VARIANTS, *_plugins()][:6])
    return (
        f"there is {names}, and onnx:FILE, timm:NAME, torchvision:NAME, file.py:object; "
        "stored predictions are read by heldout score"
    )
