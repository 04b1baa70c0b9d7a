"""What training on one domain is worth on another, and what that predicts of data efficiency.

CLIP-GeoYFCC's authors trained on 1,000 images of each domain j, measured the accuracy A[j, i] on every
domain i, and predicted from it how many labels a strategy saves: with the natural mix w of the domains
and the mix s that the strategy selects in its first three rounds,

- m1 = Σ_i w_i Σ_j s_j A[j, i]: the accuracy that one label of the selected mix transfers to the natural
  one; m2 the same with A[j, i] / A[i, i], relative to labels of the domain itself;
- m3 and m4: what labels of the natural mix transfer, m1 or m2 with w in place of s, over m1 or m2.

Their logs (14 mixtures of DomainNet's domains) give correlations with the data efficiency of ``margin``
of 0.68, 0.53, 0.70 and 0.76; ranks 0.53, 0.47, 0.72 and 0.84. m3 and m4 are larger where a strategy
selects what transfers *less*: it is hard domains that it spends labels on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from heldout.core.errors import NotApplicable, UserError
from heldout.curate.active.classifier import Trainer
from heldout.curate.active.study import Outcome, count_cells, domain_accuracy, trained_on
from heldout.curate.active.task import TEST, TRAIN, LabelingTask
from heldout.data.testset.hashing import derived_seed, row_hash
from heldout.measure.score.records import (
    EfficiencyPredictors,
    Predicted,
    PredictorCorrelation,
    Transfer,
)
from heldout.stats.intervals import t_quantile

PREDICTORS = ("m1", "m2", "m3", "m4")
ROUNDS = 3
"""Rounds whose labels are the mix that a strategy selects."""
_LEVEL = 0.95


def check_transfer(problem: LabelingTask, labels: int) -> None:
    """Refuse more labels of a domain than it has candidates, before anything is trained."""
    sizes = problem.domain_sizes
    if sizes.min() < labels:
        name = problem.domain_names[int(sizes.argmin())]
        raise UserError(
            f"{labels:,} labels of one domain are asked for, {name} has {int(sizes.min()):,} candidates",
            fix="give a smaller --transfer",
        )


def transfer_accuracies(
    problem: LabelingTask, trainer: Trainer, labels: int, *, seeds: Sequence[int]
) -> np.ndarray:
    """Accuracy on the test images of domain i after training on domain j, float64 (j, i).

    Means over ``seeds``, each with other ``labels`` images of the domain, drawn evenly; NaN where a
    domain has no test images.
    """
    count, rows, test = len(problem.domain_names), problem.rows(TRAIN), problem.rows(TEST)
    check_transfer(problem, labels)
    found = np.zeros((count, count))
    for seed in seeds:
        hashes = row_hash(problem.id_column.take(rows), seed=derived_seed("transfer", seed))
        order = rows[np.argsort(hashes, kind="stable")]
        for domain in range(count):
            learnt = np.sort(order[problem.domains[order] == domain][:labels])
            logits = trained_on(problem, trainer, learnt, seed=seed)(test).logits
            cells = count_cells(logits, problem.labels[test], problem.domains[test], count=count)
            found[domain] += domain_accuracy(cells) / len(seeds)
    return found


def efficiency_predictors(
    accuracies: np.ndarray, natural: np.ndarray, selected: np.ndarray
) -> dict[str, float]:
    """m1 to m4 of accuracies (trained on, tested on) and two mixes (domains,); NaN is null.

    Mixes are in any unit. A domain without images in the natural mix does not count.

    >>> found = efficiency_predictors(np.array([[0.8, 0.2], [0.4, 0.5]]), [1, 1], [0, 1])
    >>> {name: round(value, 3) for name, value in found.items()}
    {'m1': 0.45, 'm2': 0.75, 'm3': 1.056, 'm4': 0.967}
    """
    w, s = (np.asarray(mix, np.float64) / np.sum(mix) for mix in (natural, selected))
    own = np.diagonal(accuracies)
    relative = np.divide(
        accuracies, own, out=np.full(accuracies.shape, np.nan), where=np.asarray(own) > 0
    )
    there = w > 0

    def transferred(values: np.ndarray, mix: np.ndarray) -> float:
        chosen = values[np.ix_(mix > 0, there)]
        return float(mix[mix > 0] @ chosen @ w[there])

    m1, m2 = transferred(accuracies, s), transferred(relative, s)
    natural1, natural2 = transferred(accuracies, w), transferred(relative, w)
    nothing = float("nan")
    return {
        "m1": m1,
        "m2": m2,
        "m3": natural1 / m1 if m1 else nothing,
        "m4": natural2 / m2 if m2 else nothing,
    }


def first_selected(outcome: Outcome, strategy: str) -> np.ndarray:
    """Labels by domain that a strategy chose in its first rounds, of all seeds, int64 (domains,)."""
    runs = outcome.rounds[strategy].values()
    found: np.ndarray = np.sum([made.quota for run in runs for made in run[:ROUNDS]], axis=0)
    return found


def transfer_records(
    outcome: Outcome,
    trainer: Trainer,
    labels: int,
    *,
    efficiencies: Mapping[str, float | None],
) -> list[Predicted]:
    """Transfer between domains, predictors of every strategy, and how these go with ``efficiencies``.

    Correlations are over the strategies of which the efficiency is known, four or more.
    """
    problem, names = outcome.problem, outcome.problem.domain_names
    accuracies = transfer_accuracies(problem, trainer, labels, seeds=outcome.seeds)
    shared = {"testset": problem.name, "labels": labels, "seeds": len(outcome.seeds)}
    cells = [
        Transfer(trained_on=one, tested_on=other, value=_finite(accuracies[j, i]), **shared)  # type: ignore[arg-type]
        for j, one in enumerate(names)
        for i, other in enumerate(names)
    ]
    predictors = [
        EfficiencyPredictors(
            testset=problem.name,
            strategy=name,
            efficiency=efficiencies.get(name),
            **{key: _finite(value) for key, value in found.items()},
        )
        for name in outcome.rounds
        for found in [
            efficiency_predictors(accuracies, problem.domain_sizes, first_selected(outcome, name))
        ]
    ]
    known = [each for each in predictors if each.efficiency is not None]
    return [*cells, *predictors, *(correlations(known) if len(known) > 3 else [])]


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def correlations(found: Sequence[EfficiencyPredictors]) -> list[PredictorCorrelation]:
    """How each predictor goes with data efficiency; one that does not vary is left out."""
    from scipy.stats import rankdata

    made = []
    for name in PREDICTORS:
        pairs = [
            (getattr(each, name), each.efficiency)
            for each in found
            if getattr(each, name) is not None and each.efficiency is not None
        ]
        if len(pairs) < 4:
            raise NotApplicable(
                f"{len(pairs)} pairs of {name} and an efficiency have no correlation",
                fix="give four or more",
            )
        values = np.array(pairs).T
        if not np.ptp(values, axis=1).all():
            continue
        value = float(np.corrcoef(values)[0, 1])
        reach = t_quantile(_LEVEL, None) / np.sqrt(len(pairs) - 3)
        with np.errstate(divide="ignore"):  # a perfect one has no width
            low, high = np.tanh(np.arctanh(value) + np.array([-reach, reach]))
        made.append(
            PredictorCorrelation(
                predictor=name,
                n=len(pairs),
                value=value,
                low=float(low),
                high=float(high),
                ranks=float(np.corrcoef(rankdata(values, axis=1))[0, 1]),
                level=_LEVEL,
            )
        )
    return made


def of_domains(problem: LabelingTask, domains: Sequence[str]) -> LabelingTask:
    """The task with images of some domains alone: a mixture."""
    names = sorted(set(domains))
    if unknown := set(names) - set(problem.domain_names):
        raise UserError(
            f"{problem.name} has no domain {min(unknown)}",
            fix=f"it has {', '.join(problem.domain_names)}",
        )
    codes = [problem.domain_names.index(name) for name in names]
    rows = np.flatnonzero(np.isin(problem.domains, codes))
    return replace(
        problem,
        ids=tuple(problem.ids[row] for row in rows.tolist()),
        features=None if problem.features is None else problem.features[rows],
        labels=problem.labels[rows],
        domains=np.searchsorted(codes, problem.domains[rows]),
        parts=problem.parts[rows],
        domain_names=tuple(names),
    )
