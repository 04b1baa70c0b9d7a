"""One call on made-up images, so that what cannot work is said before anything runs."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from heldout.core.errors import MismatchError, NotApplicable, UserError
from heldout.data.images.preprocessing import Preprocessing
from heldout.models.adapters.answers import Outputs, finite_rows, look_like_probabilities
from heldout.models.adapters.function import FunctionModel
from heldout.models.adapters.model import Answer, Model


def try_models(models: Iterable[Model], *, features: bool = False) -> None:
    """Refuse models that cannot do what is asked of them: one line instead of a broken run.

    Functions are tried, as nobody has looked at what they return; with ``features`` every model is.
    """
    for model in {id(model): model for model in models}.values():
        if not features and not isinstance(model, FunctionModel):
            continue
        answer = model(made_up_pixels(model.preprocessing, 1))
        if features and answer.features is None:
            raise NotApplicable(
                f"{model.name} gives no features",
                fix="leave out --features, or let it give them beside its logits",
            )
        if isinstance(model, FunctionModel):
            check_answer(answer, model.name, model.outputs, fix='state outputs="probabilities"')


def check_answer(answer: Answer, where: str, outputs: Outputs, *, fix: str) -> None:
    """Refuse answers that are no numbers, and probabilities where logits are stated."""
    if not finite_rows(answer).all():
        raise UserError(
            f"{where} gives NaN or infinity", fix="check the export and its preprocessing"
        )
    if outputs == "logits" and look_like_probabilities(answer.logits):
        raise MismatchError(
            f"outputs of {where} are at least 0 and sum to 1: probabilities, not logits", fix=fix
        )


def made_up_pixels(preprocessing: Preprocessing, rows: int) -> np.ndarray:
    """Varied images, uint8 (rows, height, width, 3): noise of its own brightness in each."""
    geometry = preprocessing.geometry
    shape = (rows, geometry.crop_height, geometry.crop_width, 3)
    generator = np.random.default_rng(0)
    noise = generator.integers(0, 256, shape)
    contrast = generator.uniform(0.1, 1, (rows, 1, 1, 3))
    return (noise * contrast).astype(np.uint8)
