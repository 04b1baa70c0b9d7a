"""Scores on revisions: stored predictions pooled by image id, so that an older or newer revision of
a test set is scored on the images that some stored set shares with it.

Nothing is predicted again. A score then covers n of the N images of the revision, and says so: its
slice is ``predicted=true``, and two counts give n and N.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from heldout.core.errors import LabelError, NotApplicable
from heldout.core.records import Count
from heldout.data.testset import TestSet
from heldout.measure.score.estimate import LEVEL, REPLICATES, IntervalOptions, estimate
from heldout.measure.score.measure import Measured, measure
from heldout.measure.score.records import Score
from heldout.measure.score.slices import ALL, format_slice
from heldout.models.predictions import Predictions

PREDICTED = format_slice({"predicted": True})
"""The slice of a revision's images that have a stored prediction."""


def pool_predictions(predictions: Sequence[Predictions]) -> tuple[Predictions, int]:
    """One model's outputs on several sets as one, each image once; only the top k is kept.

    Also the number of images whose top-1 prediction differs between two of the sets: the first set
    named is believed, and an output over a failure.
    """
    import pyarrow as pa

    first = predictions[0]
    for other in predictions[1:]:
        if other.label_space.fingerprint != first.label_space.fingerprint:
            raise LabelError(
                f"{first.model} predicts {first.label_space.name} on one set and "
                f"{other.label_space.name} on another",
                fix="predict in one label space",
            )
    ranks = min(item.topk.shape[1] for item in predictions)
    outputs: dict[str, np.ndarray] = {}
    failures: dict[str, str] = {}
    differ: set[str] = set()
    for item in predictions:
        for row, image in enumerate(item.image_ids.to_pylist()):
            if image not in outputs or (image in failures and row not in item.failures):
                outputs[image] = item.topk[row, :ranks]
                failures.pop(image, None)
                if row in item.failures:
                    failures[image] = item.failures[row]
            elif row not in item.failures and outputs[image][0] != item.topk[row, 0]:
                differ.add(image)
    pooled = Predictions(
        model=first.model,
        image_ids=pa.array(list(outputs), pa.string()),
        topk=np.stack(list(outputs.values())),
        label_space=first.label_space,
        failures={row: failures[i] for row, i in enumerate(outputs) if i in failures},
        identity={"pooled": [item.hash for item in predictions]},
    )
    return pooled, len(differ)


def spread_over(predictions: Predictions, testset: TestSet) -> tuple[Predictions, np.ndarray]:
    """Predictions laid out on a test set's images, and which of them have one; bool (images,).

    An image without a prediction gets a row of -1.
    """
    import pyarrow.compute as pc

    found = pc.index_in(testset.image_ids, value_set=predictions.image_ids)
    rows = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    covered = rows >= 0
    spread = Predictions(
        model=predictions.model,
        image_ids=testset.image_ids,
        topk=np.where(covered[:, None], predictions.topk[rows], -1),
        label_space=predictions.label_space,
        failures={
            int(row): predictions.failures[int(rows[row])]
            for row in np.flatnonzero(covered & np.isin(rows, list(predictions.failures)))
        },
        identity=predictions.identity,
    )
    return spread, covered


def score_revisions(
    revisions: Iterable[TestSet],
    predictions: Mapping[str, Sequence[Predictions]],
    *,
    metrics: Sequence[str] = ("top1",),
    truth: str | None = None,
    seed: int = 0,
    replicates: int = REPLICATES,
    level: float = LEVEL,
    notes: list[str] | None = None,
) -> list[Score | Count]:
    """Scores of models on revisions of a test set, from predictions that are stored for any of them.

    ``predictions``  model name -> its predictions on each stored set; for an image that two of them
                     hold, the first is believed
    ``metrics``, ``notes``  as :func:`~heldout.measure.score.measure.measure` takes them

    Records of every revision: a score for each model and metric; counts ``n_images`` (N),
    ``n_predicted`` (n), and ``n_disagreements`` where two stored sets answer differently. Coverage
    is not random: what the revisions share was kept for a reason, so compare revisions on it with
    care.
    """
    options = IntervalOptions(seed, replicates, level)
    pooled = {model: pool_predictions(given) for model, given in predictions.items()}
    records: list[Score | Count] = []
    for testset in revisions:
        for model, (pool, differ) in pooled.items():
            spread, covered = spread_over(pool, testset)
            known = {"n_images": len(testset), "n_predicted": int(covered.sum())}
            if differ:
                known["n_disagreements"] = differ
            records += [
                Count(name=name, value=value, model=model, testset=testset.name)
                for name, value in known.items()
            ]
            if covered.any():
                for item in measure(
                    testset,
                    [spread],
                    metrics=metrics,
                    truth=truth,
                    absent_classes="skip",
                    notes=notes,
                ):
                    records += _scores(item, covered, options)
    return records


def _scores(measured: Measured, covered: np.ndarray, options: IntervalOptions) -> list[Score]:
    name = measured.metric.name
    if measured.metric.per_class or measured.metric.needs_logits:
        raise NotApplicable(
            f"{name} is not scored on revisions", fix="use an accuracy, such as top1"
        )
    part = measured.select(np.flatnonzero(covered[measured.rows])).one_row_per_image()
    if len(part) == 0:
        return []
    found = estimate(part, options, f"revision {name}")
    where = ALL if covered.all() else PREDICTED
    return [Score(**part.subject(0), slice=where, n=len(part), **found.of_model(0))]
