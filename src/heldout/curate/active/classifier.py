"""The classifier that is trained in every round: multinomial regression, or a user's trainer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.models.adapters.model import ModelOutput
from heldout.stats.multinomial import multinomial_gradient


@dataclass(frozen=True, eq=False)
class Images:
    """Images that a trainer is given: ids in a fixed order, features float32 (n, d) or None."""

    ids: Sequence[str]
    features: np.ndarray | None

    def __len__(self) -> int:
        return len(self.ids)


Trained = Callable[[Images], ModelOutput]
"""A classifier: logits (n, classes) in the order of images, and features where training changed them."""


class Trainer(Protocol):
    """Trains a classifier, always from the same start, and the same from the same arguments.

    ``identity`` is what its results depend on beside its arguments, as JSON: the kind, its options,
    the hash of its start weights. ``labels`` are int64 (n,) from 0 to ``classes - 1``; some classes
    may have no image yet. All chance must come from ``seed``.
    """

    name: str
    identity: Mapping[str, Any]

    def __call__(self, images: Images, labels: np.ndarray, *, classes: int, seed: int) -> Trained:
        """A classifier for these images."""
        ...


def load_trainer(text: str) -> Trainer:
    """The trainer that a text names: ``logistic``, ``logistic:STRENGTH``, ``path.py:object``."""

    kind, _, rest = text.rpartition(":")
    if text == "logistic":
        return Logistic()
    if kind == "logistic":
        try:
            return Logistic(strength=float(rest))
        except ValueError:
            raise UserError(
                f"{rest!r} is not a strength", fix="give a number above 0, such as logistic:0.1"
            ) from None
    if kind.endswith(".py"):
        from heldout.core.files import existing_file, sha256_file
        from heldout.models.adapters.user_code import load_object

        path = existing_file(Path(kind), "Python file")
        found = load_object(path, rest)
        found = found() if isinstance(found, type) else found
        if not callable(found) or not isinstance(getattr(found, "identity", None), Mapping):
            raise UserError(
                f"{text} is not a trainer",
                fix="it needs a name, an identity (a mapping) and a call that trains: docs/active.md",
            )
        identity = {"source": sha256_file(path), **found.identity}
        return UserTrainer(found, str(getattr(found, "name", rest)), identity)
    raise UserError(f"no trainer {text!r}", fix="use logistic or path.py:object")


@dataclass(eq=False)
class UserTrainer:
    """A trainer in the user's own file; the file's hash is part of its identity."""

    trainer: Trainer
    name: str
    identity: Mapping[str, Any]

    def __call__(self, images: Images, labels: np.ndarray, *, classes: int, seed: int) -> Trained:
        """A classifier for these images."""
        return self.trainer(images, labels, classes=classes, seed=seed)


def outputs(trained: Trained, images: Images, *, classes: int, name: str) -> ModelOutput:
    """A classifier's outputs, checked: finite logits float64 (n, classes), features or None."""
    answer = trained(images)
    logits = np.asarray(answer.logits, np.float64)
    if logits.shape != (len(images), classes):
        raise MismatchError(
            f"trainer {name} gives logits {logits.shape} for {len(images)} images",
            fix=f"one row of {classes} numbers per image is needed",
        )
    if not np.isfinite(logits).all():
        raise NotApplicable(
            f"trainer {name} gives logits that are not finite", fix="check its training"
        )
    features = images.features if answer.features is None else answer.features
    return ModelOutput(logits, None if features is None else np.asarray(features))


STRENGTH = 0.05


class Logistic:
    """Multinomial logistic regression with an L2 penalty of ``strength``, also on its constants.

    Features are centred on the labelled images and divided by one number, the root of their mean
    squared length. The penalty makes the optimum unique, also for classes without a label.
    """

    def __init__(self, *, strength: float = STRENGTH) -> None:
        if not (np.isfinite(strength) and strength > 0):
            raise UserError(f"a strength of {strength}", fix="give a number above 0")
        self.strength = float(strength)
        self.name = "logistic"
        self.identity: Mapping[str, Any] = {"trainer": "logistic-1", "strength": self.strength}

    def __call__(self, images: Images, labels: np.ndarray, *, classes: int, seed: int) -> Trained:
        """A classifier for these images; ``seed`` changes nothing."""
        if not len(images):
            raise NotApplicable("a classifier from no labels", fix="label some images first")
        values = _features(images)
        mean = values.mean(axis=0)
        values = values - mean
        length = float(np.sqrt((values * values).sum(axis=1).mean()))
        scale = length if length > 0 else 1.0
        design = np.column_stack([values / scale, np.ones(len(values))])
        weights = multinomial_gradient(design, labels, classes=classes, penalty=self.strength)

        def classify(images: Images) -> ModelOutput:
            return ModelOutput((_features(images) - mean) / scale @ weights[:-1] + weights[-1])

        return classify


def _features(images: Images) -> np.ndarray:
    if images.features is None:
        raise NotApplicable("logistic regression needs features", fix="name them: --features")
    return np.asarray(images.features, np.float64)
