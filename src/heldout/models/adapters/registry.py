"""Models by name: what ``-m`` arguments mean.

=========================  ====================================================================
``lite0``                  built in: ``lite0``, ``lite1``, ``lite2``
``onnx:model.onnx``        an ONNX file with a sidecar
``timm:NAME``              a model of timm; likewise ``torchvision:``, ``cadene:``
``open_clip:ARCH/TAG``     zero-shot with open_clip
``path/file.py:object``    your own function, model, or function that returns one
``predictions:PATH``       outputs that another program wrote; read, not run
``NAME``, ``NAME:...``     a plug-in: an entry point of the group ``heldout.models.adapters``
``all``, ``lite*``, ...    the installed built-in models; patterns over names and files
``@models.txt``            a file with one of the above a line; ``#`` begins a comment
=========================  ====================================================================

An adapter is a module, or a plug-in's object, with ``load(name, **model_args) -> Model`` and
``names() -> tuple[str, ...]``; a plug-in that is a model, or returns one, needs no more than that.
Naming models imports none of the libraries behind them.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from heldout.core.errors import NotFound, UserError
from heldout.core.plugins import plugins
from heldout.models.adapters.lite import VARIANTS
from heldout.models.adapters.lite import names as installed_built_ins
from heldout.models.adapters.model import Model

GROUP = "heldout.models"
ADAPTERS: dict[str, str] = {
    "onnx": "heldout.models.adapters.onnx",
    "timm": "heldout.models.adapters.timm",
    "torchvision": "heldout.models.adapters.torchvision",
    "cadene": "heldout.models.adapters.cadene",
    "open_clip": "heldout.models.adapters.open_clip",
}
"""Prefix -> module, imported when a model of that prefix is loaded or listed."""
_FILES = ("onnx", "predictions")
_USER_CODE = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)\Z")
_SHOWN = 6


@dataclass(frozen=True)
class PredictionFile:
    """Stands for a model whose outputs are in a file already: ``predictions:PATH``."""

    name: str
    path: Path


def load_models(
    arguments: Sequence[str], *, model_args: Mapping[str, Any] | None = None
) -> list[Model | PredictionFile]:
    """The models that arguments mean, each once, in the order of the arguments.

    Results are told apart by a model's name, so two of one name are refused.
    """
    found: dict[str, Model | PredictionFile] = {}
    for argument in expand(arguments):
        model = load_model(argument, **(model_args or {}))
        if model.name in found:
            raise UserError(
                f"{argument} is a second model named {model.name!r}",
                fix='give one of them another "name" in its sidecar, or evaluate one at a time',
            )
        found[model.name] = model
    return list(found.values())


def load_model(name: str, /, **model_args: Any) -> Model | PredictionFile:
    """The model of one name, without patterns; ``model_args`` go to its adapter."""
    if name in VARIANTS:
        return _call(
            importlib.import_module("heldout.models.adapters.lite"), name, name, model_args
        )
    if _USER_CODE.match(name):
        from heldout.models.adapters.user_code import load

        return load(name, **model_args)
    prefix, colon, rest = name.partition(":")
    if prefix == "predictions" and rest:
        return _prediction_file(rest)
    if prefix in ADAPTERS and rest:
        return _call(_adapter(prefix), rest, name, model_args)
    point = _plugins().get(prefix)
    if point is not None:
        return _plugin(point, rest if colon else None, name, model_args)
    raise _unknown(name)


def expand(arguments: Sequence[str]) -> list[str]:
    """Names without ``all``, patterns and list files, each once, in order; nothing is loaded."""
    found: dict[str, None] = {}
    for argument in arguments:
        if argument.startswith("@"):
            for line in _lines(Path(argument[1:])):
                found |= dict.fromkeys(_expand_one(line))
        else:
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
    adapter = _adapter(prefix) if prefix in ADAPTERS else _plugin_adapter(prefix)
    if adapter is None:
        raise _unknown(pattern)
    named = sorted(name for name in adapter.names() if fnmatch.fnmatchcase(name, rest))
    return tuple(f"{prefix}:{name}" for name in named)


def parse_model_args(items: Sequence[str]) -> dict[str, Any]:
    """``key=value`` items as keyword arguments; a value is JSON if it can be read as such.

    >>> parse_model_args(["pretrained=false", "checkpoint=best.pt", "sizes=[1, 2]"])
    {'pretrained': False, 'checkpoint': 'best.pt', 'sizes': [1, 2]}
    """
    made: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        if not equals or not key.isidentifier():
            raise UserError(f"model argument {item!r}", fix="write key=value")
        if key in made:
            raise UserError(f"model argument {key!r} is given twice", fix="give it once")
        try:
            made[key] = json.loads(text)
        except (json.JSONDecodeError, RecursionError):
            made[key] = text
    return made


def _expand_one(argument: str) -> tuple[str, ...]:
    if argument == "all":
        return installed_built_ins() or ("lite0",)  # the latter to say what to install
    is_pattern = any(sign in argument for sign in "*?[")
    if not is_pattern or _USER_CODE.match(argument):
        return (argument,)
    prefix, colon, rest = argument.partition(":")
    if colon and prefix in _FILES and Path(rest).exists():
        return (argument,)
    found = list_models(argument)
    if not found:
        kind = "files" if colon and prefix in _FILES else "models"
        raise NotFound(f"no {kind} match {argument!r}", fix=_offer())
    return found


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise NotFound(f"no list of models at {path}", fix="give a text file, one a line") from None
    lines = [re.sub(r"(^|\s)#.*", "", line).strip() for line in text.splitlines()]
    found = [line for line in lines if line]
    nested = next((line for line in found if line.startswith("@")), None)
    if nested or not found:
        problem = f"names another list, {nested!r}" if nested else "is empty"
        raise UserError(f"the list of models {path} {problem}", fix="name models in it, one a line")
    return found


def _prediction_file(text: str) -> PredictionFile:
    path = Path(text)
    if not path.exists():
        raise NotFound(f"no predictions at {path}", fix="check the path")
    return PredictionFile(path.stem if path.is_file() else path.name, path)


def _adapter(prefix: str) -> Any:
    return importlib.import_module(ADAPTERS[prefix])


def _call(adapter: Any, rest: str, name: str, model_args: Mapping[str, Any]) -> Model:
    signature = inspect.signature(adapter.load)
    try:
        signature.bind(rest, **model_args)
    except TypeError:
        known = list(signature.parameters)[1:]
        raise UserError(
            f"{name} does not take the model arguments {', '.join(model_args)}",
            fix=f"it takes {', '.join(known) or 'none'}",
        ) from None
    made: Model = adapter.load(rest, **model_args)
    return made


def _plugin(point: EntryPoint, rest: str | None, name: str, model_args: Mapping[str, Any]) -> Model:
    found = point.load()
    if hasattr(found, "load") and hasattr(found, "names"):
        if not rest:
            raise UserError(f"the plug-in {name!r} offers many models", fix=f"write {name}:NAME")
        return _call(found, rest, name, model_args)
    if rest is not None:
        raise UserError(f"the plug-in {point.name!r} is one model", fix=f"write {point.name}")
    from heldout.models.adapters.user_code import as_model

    identity = {"plugin": point.value, "version": point.dist.version if point.dist else None}
    return as_model(found, model_args, where=name, identity=identity)


def _plugin_adapter(prefix: str) -> Any:
    point = _plugins().get(prefix)
    found = point.load() if point is not None else None
    return found if hasattr(found, "names") else None


def _plugins() -> dict[str, EntryPoint]:
    return plugins(GROUP, "model", reserved=(*VARIANTS, *ADAPTERS, "predictions", "all"))


def _unknown(name: str) -> NotFound:
    if Path(name).suffix == ".onnx":
        return NotFound(f"no model {name!r}", fix=f"an ONNX file is named onnx:{name}")
    if Path(name).suffix == ".py":
        return NotFound(f"no model {name!r}", fix=f"name an object in it, such as {name}:predict")
    prefix, colon, rest = name.partition(":")
    known = [*VARIANTS, *_plugins(), *(f"{p}:" for p in (*ADAPTERS, "predictions"))]
    near = difflib.get_close_matches(f"{prefix}:" if colon else name, known, n=3, cutoff=0.5)
    if near:
        shown = [f"{item}{rest}" if item.endswith(":") else item for item in near]
        return NotFound(f"no model {name!r}", fix=f"did you mean {' or '.join(shown)}")
    return NotFound(f"no model {name!r}", fix=_offer())


def _offer() -> str:
    names = ", ".join([*VARIANTS, *_plugins()][:_SHOWN])
    return (
        f"there is {names}, and onnx:FILE, timm:NAME, torchvision:NAME, file.py:object; "
        "stored predictions are read by heldout score"
    )
