"""``heldout mistakes panel``: how far reviewers agree, what they rule, and a truth made of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import emit, note, print_table, say
from heldout.cli.options import JsonOption, LevelOption, SaveOption, WorkspaceOption

if TYPE_CHECKING:
    from heldout.core.workspace import Workspace
    from heldout.data.judgements.consensus import Rule
    from heldout.data.judgements.judgement import Judgement
    from heldout.data.testset import TestSet
    from heldout.measure.mistakes.panel import Agreement, Key, Ruling
    from heldout.measure.score.records import Count, Record, Summary

RuleOption = Annotated[
    str,
    typer.Option(
        help="How answers become one: majority, plurality, unanimous, threshold, dawid-skene; "
        "unclear where it does not decide."
    ),
]
ShareOption = Annotated[
    float | None, typer.Option(help="Share of votes, for threshold and dawid-skene.")
]
FoldOption = Annotated[bool, typer.Option("--fold/--no-fold", help="Borderline counts as Minor.")]


def check_rule(text: str) -> Rule:
    """The rule of that name; ``score`` is for one answer against the rest, not for a panel."""
    from heldout.core.errors import UserError
    from heldout.data.judgements.consensus import RULES

    for rule in RULES:
        if rule == text and rule != "score":
            return rule
    raise UserError(
        f"--rule {text!r}", fix=f"use one of {', '.join(rule for rule in RULES if rule != 'score')}"
    )


def panel(
    testset: Annotated[
        str, typer.Option("--testset", "-t", help="Test set whose predictions were judged.")
    ] = "",
    rule: RuleOption = "majority",
    share: ShareOption = None,
    people: Annotated[int, typer.Option(min=1, help="People that a ruling needs.")] = 1,
    fold: FoldOption = True,
    truth: Annotated[
        str | None,
        typer.Option(help="Truth to revise; the set's multi-label one, or its default."),
    ] = None,
    revise: Annotated[
        bool,
        typer.Option(
            "--revise", help="Add a revision of the truth to the set, rulings laid over it."
        ),
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Name of the revision; multilabel-2, … by default.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option("--export", help="Write wrong pairs as a published mistakes JSON file."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", help="--export: only mistakes that this model makes."),
    ] = None,
    level: LevelOption = 0.95,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap over pairs.")] = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Reviewers' agreement and rulings; with --revise a new truth, with --export a mistakes file."""
    from heldout.core.errors import NotApplicable, UserError
    from heldout.core.workspace import Workspace
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.data.testset import find_testset
    from heldout.measure.mistakes.panel import PARTS, agreement, panel_answers, rulings

    if not testset:
        raise UserError("no test set is named", fix="name it with -t")
    chosen = check_rule(rule)
    place = Workspace.find(workspace)
    found = find_testset(place, testset)
    answers = judgements_about(found, place.judgements)
    given = panel_answers(answers, fold=fold)
    if not given.answers:
        raise NotApplicable(
            f"nobody has judged a prediction on {found.name}",
            fix="write a queue with heldout mistakes queue, and import it filled in",
        )
    made = rulings(given, rule=chosen, share=share, people=people)
    agreements: list[Agreement] = []
    for part in PARTS:
        try:
            agreements.append(agreement(given, part, seed=seed, level=level))
        except NotApplicable:
            continue
    if not agreements:
        note("nobody can be compared: no (image, prediction) was judged by two people")
    if revise:
        _revise(found, truth, made, chosen, people, name, answers)
    if to is not None:
        _export(found, made, to, model, place)
    records: list[Record] = [
        *_counts(found, made),
        *_agreement_records(found, agreements, level),
    ]
    emit(
        records,
        as_json=as_json,
        save=save,
        show=lambda _: _show(found, made, agreements),
    )


def _multilabel(testset: TestSet, truth: str | None) -> str:
    if truth is not None:
        testset.truth(truth)
        return truth
    kinds = [n for n, where in testset.card.truths.items() if where.get("kind") == "multilabel"]
    return kinds[0] if kinds else testset.card.default_truth


def _revise(
    testset: TestSet,
    truth: str | None,
    made: dict[Key, Ruling],
    rule: str,
    people: int,
    name: str | None,
    answers: Sequence[Judgement],
) -> None:
    from heldout.data.testset import add_truth
    from heldout.measure.mistakes.reviewed_accuracy import (
        next_revision,
        problematic_images,
        revise_truth,
    )

    base = _multilabel(testset, truth)
    revision = revise_truth(
        testset.truth(base),
        made,
        base=base,
        label_space=testset.label_space,
        rule=rule,
        people=people,
        problematic=problematic_images(answers),
    )
    chosen = name or next_revision(base, testset.truths)
    grown = add_truth(testset, chosen, revision.table, provenance=revision.provenance)
    for text in revision.notes:
        note(text)
    say(f"{grown.name}: truth {chosen} revises {base}, now {grown.card.content_hash[:12]}")


def _export(
    testset: TestSet, made: dict[Key, Ruling], to: Path, model: str | None, place: Workspace
) -> None:
    from heldout.data.judgements.consensus import UNCLEAR
    from heldout.data.published.answers import write_mistakes
    from heldout.measure.evaluation.flow import stored_predictions

    judged = {key: ruling for key, ruling in made.items() if ruling.answer == "wrong"}
    if model is not None:
        (outputs,) = stored_predictions(testset, [model], workspace=place)
        rows = outputs.rows_for(testset.image_ids, testset=testset.name)
        firsts = outputs.topk[rows, 0].tolist()
        ids = outputs.label_space.ids
        said = {
            (image, ids[guess])
            for image, guess in zip(testset.image_ids.to_pylist(), firsts, strict=True)
            if guess >= 0
        }
        judged = {key: ruling for key, ruling in judged.items() if key in said}
    decided = {
        key: (ruling.category, ruling.severity)
        for key, ruling in judged.items()
        if ruling.category not in (None, UNCLEAR) and ruling.severity not in (None, UNCLEAR)
    }
    wrong = {key: (str(category), str(severity)) for key, (category, severity) in decided.items()}
    count = write_mistakes(to, wrong, classes=testset.label_space.ids)
    say(f"{to}: {count:,} mistakes")
    if len(judged) > count:
        note(
            f"{len(judged) - count:,} wrong predictions without an agreed category and severity are "
            "left out"
        )


def _counts(testset: TestSet, made: dict[Key, Ruling]) -> list[Count]:
    from heldout.measure.score.records import Count

    counts = {"n_rulings": len(made)}
    for answer in ("correct", "unclear", "wrong"):
        counts[f"n_{answer}"] = sum(ruling.answer == answer for ruling in made.values())
    for severity in ("Major", "Minor", "Borderline", "unclear"):
        counts[f"n_severity_{severity.lower()}"] = sum(
            ruling.severity == severity for ruling in made.values()
        )
    return [Count(name=name, value=value, testset=testset.name) for name, value in counts.items()]


def _agreement_records(
    testset: TestSet, agreements: Sequence[Agreement], level: float
) -> list[Summary]:
    from heldout.measure.score.records import Summary

    records = []
    for item in agreements:
        shared: dict[str, Any] = {
            "model": None,
            "testset": testset.name,
            "truth": "panel",
            "metric": "agreement",
            "columns": item.part,
            "n": item.subjects,
            "testset_hash": testset.card.content_hash,
        }
        records.append(Summary(**shared, name="share", value=item.share))
        records.append(
            Summary(
                **shared,
                name="krippendorff_alpha",
                value=item.alpha,
                low=item.low,
                high=item.high,
                interval=None if item.low is None else "bootstrap-percentile",
                level=None if item.low is None else level,
                reason=None if item.alpha is not None else "all answers are the same",
            )
        )
        records += [
            Summary(**{**shared, "n": n}, name="cohen_kappa", at=f"{one} and {other}", value=kappa)
            for one, other, n, kappa in item.kappas
        ]
    return records


def _show(testset: TestSet, made: dict[Key, Ruling], agreements: Sequence[Agreement]) -> None:
    rows = [
        [answer, f"{sum(ruling.answer == answer for ruling in made.values()):,}"]
        for answer in ("correct", "unclear", "wrong")
    ]
    severities: dict[str, int] = {}
    for ruling in made.values():
        if ruling.severity is not None:
            severities[ruling.severity] = severities.get(ruling.severity, 0) + 1
    rows += [[f"wrong, {name}", f"{n:,}"] for name, n in sorted(severities.items())]
    print_table(f"{testset.name}: {len(made):,} pairs ruled on", ["ruling", "pairs"], rows)
    if agreements:
        print_table(
            "agreement of reviewers",
            ["on", "pairs", "people", "equal answers", "Krippendorff's alpha"],
            [
                [
                    item.part,
                    f"{item.subjects:,}",
                    f"{item.people}",
                    f"{100 * item.share:.1f} %",
                    "" if item.alpha is None else _alpha(item),
                ]
                for item in agreements
            ],
        )


def _alpha(item: Agreement) -> str:
    if item.low is None or item.high is None:
        return f"{item.alpha:.2f}"
    return f"{item.alpha:.2f} [{item.low:.2f}, {item.high:.2f}]"
