"""A Python function as a model: give it label space, preprocessing, and what its answers depend on.

The function gets float32 numbers, already scaled and in the layout of its preprocessing, and
returns logits (b, classes), or logits and features.
"""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from heldout.core.errors import UserError
from heldout.core.files import existing_file, sha256_file
from heldout.data.images.preprocessing import Preprocessing
from heldout.data.labels.label_space import LabelSpace
from heldout.models.adapters.answers import OUTPUTS, Outputs, made_answer
from heldout.models.adapters.model import Answer
from heldout.models.adapters.values import model_input

F = TypeVar("F", bound=Callable[..., Any])


class FunctionModel:
    """A function as a model.

    ``function``     float32 batch in the preprocessing's layout -> logits (b, classes), a pair of
                     logits and features (b, d), or an :class:`Answer`
    ``identity``     what its answers depend on, such as ``{"step": 1000}``; predictions are kept
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
        if outputs not in OUTPUTS:
            raise UserError(f"outputs {outputs!r} of {name}", fix=f"use {' or '.join(OUTPUTS)}")
        if not isinstance(preprocessing, Preprocessing):
            raise UserError(f"preprocessing of {name} is none", fix="give a Preprocessing(...)")
        self.name = name
        self.label_space = (
            label_space if isinstance(label_space, LabelSpace) else LabelSpace.load(label_space)
        )
        self.preprocessing: Preprocessing = preprocessing
        self.identity: Mapping[str, Any] = {**identity, "outputs": outputs}
        self.outputs: Outputs = outputs
        self._function = function
        self._lock = None if thread_safe else threading.Lock()

    def __call__(self, pixels: np.ndarray) -> Answer:
        """Logits (and features) of uint8 pixels (b, height, width, 3)."""
        values = model_input(pixels, self.preprocessing)
        if self._lock is None:
            found = self._function(values)
        else:
            with self._lock:
                found = self._function(values)
        logits, features = _parts(found)
        return made_answer(
            logits,
            features,
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


def _parts(found: Any) -> tuple[Any, Any]:
    if isinstance(found, Answer):
        return found.logits, found.features
    if isinstance(found, tuple) and len(found) == 2:
        return found
    return found, None


def classifier(
    *,
    label_space: LabelSpace | str,
    preprocessing: Preprocessing,
    files: Iterable[str | os.PathLike[str]],
    outputs: Outputs = "logits",
    thread_safe: bool = False,
) -> Callable[[F], F]:
    """Mark a function of your own file as a classifier, for ``-m path.py:function``.

    ``files`` are all files that its answers depend on beside its own source, above all weights,
    relative to the source; an empty list says that there are none. Their hashes become part of
    the model's identity, so another checkpoint never reuses an old result.
    """

    def mark(function: F) -> F:
        stated = {
            "label_space": label_space,
            "preprocessing": preprocessing,
            "files": tuple(os.fspath(file) for file in files),
            "outputs": outputs,
            "thread_safe": thread_safe,
        }
        for key, value in stated.items():
            setattr(function, key, value)
        return function

    return mark


def files_identity(files: Iterable[str], *, folder: Path) -> dict[str, str]:
    """Name and SHA-256 of each file, sorted by name; relative names are looked for in ``folder``."""
    return {
        name: sha256_file(existing_file(folder / name, "file that a model depends on"))
        for name in sorted(set(files))
    }
