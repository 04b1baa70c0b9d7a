"""Images without an output: wrong by default, dropped only when asked, and then said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from heldout import evaluate
from heldout.core.errors import NotApplicable, UserError
from heldout.testing.example import example_predictions, example_testset


def test_failed_images_count_as_wrong_or_are_dropped_and_counted() -> None:
    testset = example_testset("small", images=200)
    models = []
    for name, failing in (("oak", range(20)), ("elm", range(10, 30))):
        made = example_predictions(testset, name)
        topk, logits = made.topk.copy(), made.logits
        topk[list(failing)] = -1
        models.append(
            replace(made, topk=topk, logits=logits, failures=dict.fromkeys(failing, "broken"))
        )
    labels = np.arange(200) % 10
    wrong = evaluate(models, testset, metrics=["top1"])
    assert [s.n for s in wrong.scores] == [200, 200]
    for score, model in zip(wrong.scores, models, strict=True):
        assert score.value == pytest.approx((model.topk[:, 0] == labels).mean())
    assert {c.name: c.value for c in wrong.counts if c.model == "oak"} == {"n_failed": 20}
    dropped = evaluate(models, testset, metrics=["top1"], on_error="drop")
    assert [s.n for s in dropped.scores] == [170, 170]
    for score, model in zip(dropped.scores, models, strict=True):
        assert score.value == pytest.approx((model.topk[30:, 0] == labels[30:]).mean())
    assert [c.value for c in dropped.counts if c.name == "n_dropped"] == [30]
    with pytest.raises(UserError, match="wrong or drop"):
        evaluate(models, testset, on_error="ignore")


def test_a_class_that_loses_all_its_images_is_said() -> None:
    testset = example_testset("small", images=200)
    made = example_predictions(testset, "oak")
    failing = range(3, 200, 10)  # every image of the fourth class
    topk = made.topk.copy()
    topk[list(failing)] = -1
    model = replace(made, topk=topk, failures=dict.fromkeys(failing, "broken"))
    options = {"metrics": ["mean_per_class"], "on_error": "drop"}
    with pytest.raises(NotApplicable, match="1 of the classes of small lost all their images"):
        evaluate(model, testset, **options)
    (score,) = evaluate(model, testset, absent_classes="skip", **options).scores
    labels = np.arange(200) % 10
    hits = [(topk[labels == c, 0] == c).mean() for c in range(10) if c != 3]
    assert score.value == pytest.approx(np.mean(hits))
