"""Models in the user's own code: a Python function, or ``path/to/file.py:object``.

A file that is named is run: on the command line, under ``--plan`` too, in a run file or a
configuration, and by a call. Whoever runs a run file from elsewhere runs what it names. Besides these
files, installed plug-ins are the only code of others that is executed; weights and data are read.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from traceback import extract_tb
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import NotFound, UserError
from heldout.core.files import existing_file, sha256_file, sha256_text
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.model import (
    Model,
    ModelOutput,
    Outputs,
    check_output,
    label_space_of,
    made_up_pixels,
    model_input,
    model_output,
)
from heldout.models.adapters.onnx import read_sidecar

F = TypeVar("F", bound=Callable[..., Any])
_MARK = "_heldout_classifier"


class FunctionModel:
    """A function as a model.

    ``function``     float32 batch, scaled and in the preprocessing's layout -> logits (b, classes),
                     a pair of logits and features (b, d), or a :class:`ModelOutput`
    ``identity``     what its outputs depend on, such as ``{"step": 1000}``; predictions are kept
                     under it and found again by it, so other weights need another identity
    ``thread_safe``  whether several threads may call it at once; if not, one waits for the other
    """

    device = "cpu"

    def __init__(
        self,
        function: Callable[[np.ndarray], Any],
        *,
        name: str,
        label_space: LabelSpace | str,
        preprocessing: Preprocessing,
        identity: Mapping[str, Any],
        outputs: Outputs = "logits",
        thread_safe: bool = False,
    ) -> None:
        self.name = name
        self.label_space = label_space_of(label_space)
        self.preprocessing: Preprocessing = preprocessing
        self.identity: Mapping[str, Any] = {**identity, "outputs": outputs}
        self.outputs: Outputs = outputs
        self._function = function
        self._turn = nullcontext() if thread_safe else threading.Lock()

    def __call__(self, pixels: np.ndarray) -> ModelOutput:
        """Logits (and features) of uint8 pixels (b, height, width, 3)."""
        values = model_input(pixels, self.preprocessing)
        with self._turn:
            found = self._function(values)
        if isinstance(found, ModelOutput):
            found = (found.logits, found.features)
        parts = found if isinstance(found, tuple) and len(found) == 2 else (found,)
        return model_output(
            *parts,
            rows=len(pixels),
            classes=len(self.label_space),
            model=self.name,
            outputs=self.outputs,
        )

    def with_preprocessing(self, preprocessing: Preprocessing) -> FunctionModel:
        """The same function behind another preprocessing."""
        made = copy.copy(self)
        made.preprocessing = preprocessing
        return made


def classifier(
    *,
    label_space: LabelSpace | str,
    preprocessing: Preprocessing,
    files: Iterable[str | os.PathLike[str]],
    outputs: Outputs = "logits",
    thread_safe: bool = False,
) -> Callable[[F], F]:
    """Mark a function of your own file as a classifier, for ``-m path.py:function``.

    ``files`` are all files that its outputs depend on besides its own source, above all weights,
    relative to the source; an empty list states that there are none. Their hashes become part of
    the model's identity, so another checkpoint never reuses an old result.
    """

    stated = {
        "label_space": label_space,
        "preprocessing": preprocessing,
        "files": tuple(os.fspath(file) for file in files),
        "outputs": outputs,
        "thread_safe": thread_safe,
    }

    def mark(function: F) -> F:
        setattr(function, _MARK, stated)
        return function

    return mark


def check_models(models: Iterable[Model]) -> None:
    """Refuse functions whose outputs do not fit, which nothing has checked: one line instead of a
    broken run. Each runs on one made-up image."""
    for model in models:
        if isinstance(model, FunctionModel):
            output = model(made_up_pixels(model.preprocessing, 1))
            check_output(output, model.name, model.outputs, fix='state outputs="probabilities"')


def load(argument: str, /, **model_args: Any) -> Model:
    """The model that ``path/to/file.py:object`` names.

    The object is a :class:`Model`; or a function marked with :func:`classifier` or with a sidecar
    beside its file; or a class or function that returns one of these when it is called with
    ``model_args``.
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
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, Exception | SystemExit):
            raise _not_imported(path, error) from error
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


def _not_imported(path: Path, error: BaseException) -> UserError:
    frames = extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path.absolute())]
    where = f"line {lines[-1]}: " if lines else ""
    return UserError(
        f"{path} cannot be imported ({where}{type(error).__name__}: {error})",
        fix="correct the file, or install what it needs",
    )


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
    made = _direct(found, path, identity)
    if made is not None:
        if model_args:
            raise UserError(
                f"{where} takes no model arguments", fix="name a function that returns the model"
            )
        return made
    if callable(found) and _can_be_called(found, model_args):
        full = {**identity, "args": dict(model_args)} if model_args else identity
        made = _direct(found(**model_args), path, full)
        if made is not None:
            return made
    if callable(found) and model_args:
        fix = f"it cannot be called with {', '.join(model_args)}, or does not return a model"
    else:
        fix = (
            "mark the function with @heldout.models.adapters.classifier(label_space=..., "
            "preprocessing=..., files=[...]), or state these in a JSON file beside it"
        )
    raise UserError(f"{where} is not a model", fix=fix)


def _direct(found: Any, path: Path | None, identity: Mapping[str, Any]) -> Model | None:
    """``found`` if it is a model, or a function with what a model needs stated; else None."""
    if isinstance(found, Model) and not isinstance(found, type):
        return found
    name = getattr(found, "__name__", type(found).__name__)
    stated = getattr(found, _MARK, None)
    if stated is None:
        plain = path is not None and callable(found) and not _can_be_called(found, {})
        beside = read_sidecar(path) if path is not None and plain else None
        if beside is None:
            return None
        sidecar, label_space, preprocessing = beside
        name = sidecar.name or name
        stated = {
            "label_space": label_space,
            "preprocessing": preprocessing,
            "files": sidecar.files or (),
            "outputs": sidecar.outputs,
        }
    stated = dict(stated)
    folder = path.parent if path is not None else Path()
    hashes = {
        file: sha256_file(existing_file(folder / file, "file that a model depends on"))
        for file in sorted(set(stated.pop("files")))
    }
    return FunctionModel(found, name=name, identity={**identity, "files": hashes}, **stated)


def _can_be_called(found: Any, model_args: Mapping[str, Any]) -> bool:
    try:
        inspect.signature(found).bind(**model_args)
    except (TypeError, ValueError):
        return False
    return True
