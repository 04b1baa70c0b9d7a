"""``heldout mistakes quality``: how well proposals agree with what people judged."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import note, out, print_table
from heldout.cli.mistakes_inputs import SetOption, read_inputs
from heldout.cli.mistakes_knowledge import (
    AffinityOption,
    CollapseOption,
    EncoderOption,
    ImageVectorsOption,
    JudgedOption,
    PeerOption,
    PrototypesOption,
    Sources,
    SuperclassesOption,
    TextVectorsOption,
    TogetherOption,
    gathered,
    judged_verdicts,
    located,
    merged,
)
from heldout.cli.mistakes_records import SaveOption, hand_over
from heldout.cli.options import (
    ClassesOption,
    ImagesOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.quality import Quality


_SUSPICIOUS = 0.9


def quality(
    testset: SetOption = None,
    truth: TruthOption = None,
    judged: JudgedOption = None,
    folds: Annotated[int, typer.Option(min=2, help="Folds of the cross-validation.")] = 10,
    peer: PeerOption = None,
    superclasses: SuperclassesOption = None,
    affinity: AffinityOption = None,
    seen_together: TogetherOption = "auto",
    prototypes: PrototypesOption = None,
    image_vectors: ImageVectorsOption = None,
    text_vectors: TextVectorsOption = None,
    encoder: EncoderOption = None,
    images: ImagesOption = None,
    collapse: CollapseOption = "auto",
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    level: LevelOption = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 2000,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Cross-validate proposals on judged mistakes: kappa beside the most frequent category's, severity."""
    from heldout.core.errors import NotFound
    from heldout.measure.evaluation.arguments import label_map_argument
    from heldout.measure.mistakes.evidence import evidence_table
    from heldout.measure.mistakes.quality import cross_validate

    inputs = read_inputs(
        testset,
        truths=None if truth is None else [truth],
        mistakes=judged or [] if testset is None else None,
        classes=classes,
        workspace=workspace,
    )
    parts = judged_verdicts(inputs, judged)
    if not parts:
        raise NotFound(
            f"no judged mistakes of {inputs.testset.name}",
            fix="name a file with --judged, or import judgements",
        )
    sources = Sources(
        peers=peer,
        superclasses=superclasses,
        collapse=collapse,
        affinity=affinity,
        together=seen_together,
        prototypes=prototypes,
        image_vectors=image_vectors,
        text_vectors=text_vectors,
        encoder=encoder,
        images=images,
    )
    verdicts = merged(parts)
    mistakes = located(inputs, verdicts, where=", ".join(parts))
    mapped = label_map_argument(label_map, [inputs.testset.name], (), workspace=inputs.workspace)
    knowledge = gathered(inputs, sources, mistakes, mapped)
    table = evidence_table(mistakes, knowledge)
    if affinity is not None and affinity.suffix == ".json":
        share = float((table.column("affinity") > 0).mean())
        if share > _SUSPICIOUS:
            note(
                f"{affinity.name} knows {share:.0%} of the judged mistakes as confusions: if they were "
                "counted on these mistakes, this quality is flattered"
            )
    found = cross_validate(
        table, verdicts, folds=folds, seed=seed, replicates=replicates, level=level
    )
    about = {"testset": inputs.testset.name, "truth": inputs.truths[0], "judged": list(parts)}
    where = {**about, "test": "cross-validation", "folds": folds}
    methods = {"majority": found.majority, "learned": found.learned}
    rows = [
        {"record": "quality", **where, "method": method, **asdict(item)}
        for method, item in methods.items()
    ]
    if found.severity is not None:
        rows.append({"record": "severity_quality", **where, **asdict(found.severity)})
    hand_over([], rows, as_json=as_json, save=save, show=lambda: _show(found))


def _show(found: Quality) -> None:
    print_table(
        f"cross-validation in {found.folds} folds: {found.learned.n:,} judged mistakes on "
        f"{found.learned.images:,} images",
        ["method", "agree", "kappa", "interval"],
        [
            [
                method,
                f"{item.accuracy:.1%}",
                "" if item.kappa is None else f"{item.kappa:.3f}",
                _between(item.kappa_low, item.kappa_high),
            ]
            for method, item in (("majority", found.majority), ("learned", found.learned))
        ],
    )
    severity = found.severity
    if severity is not None:
        out(
            f"severity: {severity.major:,} of {severity.n:,} are Major; AUC {severity.auc:.3f} "
            f"{_between(severity.auc_low, severity.auc_high)}\n"
        )


def _between(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
