"""What an unfinished prediction job keeps: each model's outputs, by themselves.

Models run together, so that an image is decoded once, and a part of theirs is written once. But each
model has it in a folder of its own, which knows nothing of the other models: a job goes on from
whatever is there, also where it was begun with fewer models, with more, or with others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from heldout.core.engine import JobResults
from heldout.core.errors import NotFound
from heldout.models.predictions.units import ModelRows, pack, unpack


class Part(NamedTuple):
    """Rows ``start`` to ``stop``, and the ``key`` that every model's outputs on them are kept under."""

    start: int
    stop: int
    key: str


class Predicts(Protocol):
    """Runs models on rows: on the processor or on GPUs."""

    def predict(
        self, start: int, stop: int, places: Sequence[int] | None = None
    ) -> Iterable[ModelRows]:
        """Outputs on rows ``start`` to ``stop`` of the models at ``places``, in that order."""
        ...


class GroupResults(JobResults):
    """The results of models that run together: a part is done when every model has it.

    ``models`` is where each one's own results are; failures are written down with the first.
    """

    def __init__(self, models: Sequence[JobResults]) -> None:
        super().__init__(models[0].folder)
        self.models = models

    def has(self, key: str) -> bool:
        """Whether every model has this part."""
        return all(model.has(key) for model in self.models)

    def write(self, key: str, data: bytes) -> None:
        """Nothing: the work has stored every model's outputs already."""


@dataclass(frozen=True, eq=False)
class GroupWork:
    """The work of a prediction job: what models lack of a part is predicted and kept."""

    predicts: Predicts
    models: Sequence[JobResults]

    def __call__(self, part: Part) -> bytes:
        """Predict a part with the models that do not have it yet."""
        missing = [place for place, model in enumerate(self.models) if not model.has(part.key)]
        made: dict[int, ModelRows] = {}
        try:
            found = self.predicts.predict(part.start, part.stop, missing)
            for place, rows in zip(missing, found, strict=True):
                made[place] = rows
        finally:  # a model that breaks does not take those before it with it
            self._keep(part.key, made)
        return b""

    def _keep(self, key: str, made: Mapping[int, ModelRows]) -> None:
        if not made:
            return
        first, *others = (self.models[place] for place in made)
        first.write(key, pack({self.models[place].folder.name: made[place] for place in made}))
        for model in others:
            model.share(key, first.path(key))


def kept_rows(results: JobResults, key: str) -> ModelRows:
    """One model's outputs on a part."""
    try:
        return unpack(results.path(key), results.folder.name)
    except FileNotFoundError:
        raise NotFound(
            f"{results.folder}: a part has no result yet", fix="run the job again to finish it"
        ) from None
