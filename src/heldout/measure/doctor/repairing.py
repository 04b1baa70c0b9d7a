"""Mending outputs in memory as findings say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from heldout.core.errors import MismatchError
from heldout.data.labels.label_space import LabelSpace
from heldout.data.testset import TestSet
from heldout.measure.doctor.case import read, shared_reading
from heldout.measure.doctor.finding import Finding
from heldout.models.predictions import Predictions


def repaired(
    predictions: Predictions, testset: TestSet, findings: Iterable[Finding]
) -> Predictions:
    """Predictions as they should have been: every repair that the findings carry, applied.

    The result is in the test set's label space, and its identity says what was mended. Findings
    of other models are left out. Logits are kept only where every class of the test set has one.
    """
    mine = [f for f in findings if f.repair is not None and f.model in ("", predictions.model)]
    made = predictions
    for finding in mine:
        repair = finding.repair
        if repair is None:
            continue
        if repair.order is not None:
            made = _in_order(made, testset, repair.order)
        if repair.reverse:
            made = replace(made, topk=np.ascontiguousarray(made.topk[:, ::-1]))
        if repair.relabel is not None:
            made = _relabelled(made, testset.label_space, repair.relabel)
    if made.label_space.fingerprint != testset.label_space.fingerprint:
        relabel = shared_reading(made.label_space, testset.label_space)
        made = _relabelled(made, testset.label_space, relabel)
    if mine:
        made = replace(made, identity={**made.identity, "repaired": [f.code for f in mine]})
    return made


def _in_order(made: Predictions, testset: TestSet, order: tuple[str, ...]) -> Predictions:
    import pyarrow as pa

    ids = testset.image_ids
    stated = made.run.get("order", "testset")
    if stated in ("name", "class"):
        from heldout.models.predictions.orders import image_order

        ids = pa.array(image_order(testset, str(stated)), pa.string())
    if len(order) != len(made):
        raise MismatchError(
            f"{len(made)} rows of {made.model} for {len(order)} images", fix="diagnose it again"
        )
    rows = made.rows_for(ids, testset=testset.name)
    return replace(
        made,
        image_ids=pa.array(order, pa.string()),
        topk=made.topk[rows],
        logits=None if made.logits is None else made.logits[rows],
        features=None if made.features is None else made.features[rows],
        failures={
            new: made.failures[int(r)] for new, r in enumerate(rows) if int(r) in made.failures
        },
        run={**made.run, "order": "repaired"},
    )


def _relabelled(made: Predictions, space: LabelSpace, relabel: np.ndarray) -> Predictions:
    topk = read(made.topk, relabel).astype(np.int32)
    logits = None
    if made.logits is not None and set(range(len(space))) <= set(relabel.tolist()):
        logits = np.empty((len(made), len(space)), dtype=made.logits.dtype)
        use = relabel[: made.logits.shape[1]] >= 0
        logits[:, relabel[: made.logits.shape[1]][use]] = made.logits[:, use]
    return replace(made, topk=topk, logits=logits, label_space=space)
