"""``path/to/file.py:object``: a model in the user's own file, and what kinds of object may be one.

Naming the file on the command line is the user's word to run it; nothing else is ever executed.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from heldout.core.errors import NotFound, UserError
from heldout.core.files import existing_file, sha256_file, sha256_text
from heldout.models.adapters.function import FunctionModel, files_identity
from heldout.models.adapters.model import Model
from heldout.models.adapters.sidecar import example_sidecar, read_sidecar, sidecar_path

_PARTS = ("name", "label_space", "preprocessing", "identity")


def load(argument: str, /, **model_args: Any) -> Model:
    """The model that ``path/to/file.py:object`` names.

    The object is a :class:`Model`; or a function marked with :func:`heldout.models.adapters.classifier`
    or with a sidecar beside its file; or a class or function that returns one of these when it is
    called with ``model_args``.
    """
    path_text, _, attribute = argument.rpartition(":")
    path = existing_file(Path(path_text), "Python file")
    found = load_object(path, attribute)
    source = {"adapter": "python", "source": sha256_file(path), "object": attribute}
    return as_model(found, model_args, where=argument, path=path, identity=source)


def load_object(path: Path, attribute: str) -> Any:
    """Run a Python file as a module and give one of its objects; dots lead into objects."""
    name = f"heldout_user_{sha256_text(str(path.resolve()))[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} cannot be loaded as Python", fix="give a .py file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and the like look their module up by name
    try:
        with _importable(path.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            offered = [n for n in vars(module) if not n.startswith("_")]
            raise NotFound(
                f"{path} has no {attribute!r}", fix=f"it has {', '.join(offered[:12]) or 'nothing'}"
            )
        found = getattr(found, part)
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the file import what lies beside it."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)


def as_model(
    found: Any,
    model_args: Mapping[str, Any],
    *,
    where: str,
    path: Path | None = None,
    identity: Mapping[str, Any],
) -> Model:
    """``found`` as a model: as it is, wrapped as a function, or made by calling it."""
    made = _direct(found, where=where, path=path, identity=identity)
    if made is not None:
        if model_args:
            raise UserError(
                f"{where} takes no model arguments", fix="name a function that returns the model"
            )
        return made
    if callable(found) and _can_be_called(found, model_args):
        full = {**identity, "args": dict(model_args)} if model_args else identity
        made = _direct(found(**model_args), where=where, path=path, identity=full)
        if made is not None:
            return made
    raise UserError(f"{where} is no model", fix=_how(where, model_args, found))


def _direct(
    found: Any, *, where: str, path: Path | None, identity: Mapping[str, Any]
) -> Model | None:
    if not callable(found) or isinstance(found, type):
        return None
    if all(hasattr(found, part) for part in _PARTS):
        model: Model = found
        return model
    name = getattr(found, "__name__", type(found).__name__)
    folder = path.parent if path is not None else Path()
    if hasattr(found, "label_space") and hasattr(found, "preprocessing"):
        files = getattr(found, "files", None)
        return FunctionModel(
            found,
            name=name,
            label_space=found.label_space,
            preprocessing=found.preprocessing,
            identity={**identity, "files": _declared(files, where, folder)},
            outputs=getattr(found, "outputs", "logits"),
            thread_safe=bool(getattr(found, "thread_safe", False)),
        )
    beside = sidecar_path(path) if path is not None else None
    if beside is None or _can_be_called(found, {}):
        return None
    stated = read_sidecar(beside)
    return FunctionModel(
        found,
        name=stated.name or name,
        label_space=stated.label_space,
        preprocessing=stated.preprocessing,
        identity={**identity, "files": _declared(stated.files, where, folder)},
        outputs=stated.outputs,
    )


def _declared(files: Any, where: str, folder: Path) -> dict[str, str]:
    if files is None:
        raise UserError(
            f"{where} does not say which files its answers depend on",
            fix='list its weights in "files", or state an empty list: without it an old result '
            "would be used for new weights",
        )
    return files_identity(files, folder=folder)


def _can_be_called(found: Any, model_args: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(found).bind(**model_args)
    except (TypeError, ValueError):
        return False
    return True


def _how(where: str, model_args: Mapping[str, Any], found: Any) -> str:
    if callable(found) and model_args:
        return f"it cannot be called with {', '.join(model_args)}, or does not return a model"
    stem = Path(where.rpartition(":")[0]).with_suffix(".json").name
    example = example_sidecar(height=224, width=224, classes=1000)
    with_files = example[:-1] + ', "files": []}'
    return (
        "mark the function with @heldout.models.adapters.classifier(label_space=..., preprocessing=..., "
        f"files=[...]), or write {stem} beside it, such as {with_files}"
    )
