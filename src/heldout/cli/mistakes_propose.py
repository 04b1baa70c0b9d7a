"""``heldout mistakes propose``: a category for every mistake, with the evidence for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heldout.cli.console import note, print_table, say
from heldout.cli.mistakes_inputs import MistakesOption, SetOption, read_inputs
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
from heldout.cli.mistakes_records import SaveOption, TopOption, hand_over
from heldout.cli.options import (
    ClassesOption,
    ExcludeOption,
    ImagesOption,
    JsonOption,
    LabelMapOption,
    ModelOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.measure.mistakes.categories import Proposal


def propose(
    testset: SetOption = None,
    model: ModelOption = None,
    truth: TruthOption = None,
    mistakes: MistakesOption = None,
    judged: JudgedOption = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Go by rules, even where judged mistakes could teach.")
    ] = False,
    to: Annotated[
        Path | None,
        typer.Option("--to", help="Write the proposals: .csv to read, .jsonl with everything."),
    ] = None,
    peer: PeerOption = None,
    superclasses: SuperclassesOption = None,
    affinity: AffinityOption = None,
    seen_together: TogetherOption = "auto",
    prototypes: PrototypesOption = None,
    image_vectors: ImageVectorsOption = None,
    text_vectors: TextVectorsOption = None,
    encoder: EncoderOption = None,
    images: ImagesOption = None,
    top: TopOption = None,
    collapse: CollapseOption = "auto",
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    exclude: ExcludeOption = None,
    seed: SeedOption = 0,
    save: SaveOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Propose a category for every mistake, with evidence; suggest how bad it is. People decide."""
    from heldout.core.errors import NotApplicable
    from heldout.measure.evaluation.arguments import label_map_argument
    from heldout.measure.mistakes.categories import propose_from, propose_learning, write_proposals
    from heldout.measure.mistakes.evidence import evidence_table
    from heldout.measure.mistakes.verdicts import mistakes_of
    from heldout.measure.score.records import Count

    inputs = read_inputs(
        testset,
        truths=None if truth is None else [truth],
        models=model,
        exclude=exclude,
        mistakes=mistakes,
        classes=classes,
        workspace=workspace,
    )
    (found,) = inputs.verdicts(label_map=label_map)
    listed = mistakes_of(found)
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
    parts = {} if rules else judged_verdicts(inputs, judged)
    taught = [
        (located(inputs, verdicts, where=where), verdicts) for where, verdicts in parts.items()
    ]
    known = {(m.image_id, m.prediction): m for group, _ in taught for m in group}
    mapped = label_map_argument(
        label_map, [inputs.testset.name], inputs.models, workspace=inputs.workspace
    )
    knowledge = gathered(inputs, sources, [*listed, *known.values()], mapped)
    table = evidence_table(listed, knowledge)
    proposals: tuple[Proposal, ...] | None = None
    if known:
        try:
            proposals = propose_learning(
                table, evidence_table(list(known.values()), knowledge), merged(parts), seed=seed
            )
            note(f"learned from {len(known):,} judged mistakes of {', '.join(parts)}")
        except NotApplicable as error:
            if judged:
                raise
            note(error.message)
    if proposals is None:
        proposals = propose_from(table)
        note("by rules: nothing is said about severity")
    space = inputs.testset.label_space
    if to is not None:
        write_proposals(to, proposals, mistakes=listed, label_space=space)
        say(f"{to}: {len(proposals):,} proposals")
    count = Counter(proposal.category for proposal in proposals)
    records = [
        Count(name=f"n_proposed_{category}", value=count[category], testset=inputs.testset.name)
        for category in sorted(count)
    ]
    shown = proposals if top is None else proposals[:top]
    rows: list[dict[str, Any]] = [
        {
            "record": "proposal",
            "testset": inputs.testset.name,
            "truth": inputs.truths[0],
            "models": list(mistake.models),
            "acceptable": list(mistake.acceptable),
            **proposal.to_dict(),
        }
        for proposal, mistake in zip(shown, listed, strict=False)
    ]
    hand_over(
        records,
        rows,
        as_json=as_json,
        save=save,
        show=lambda: _show(proposals, f"{inputs.testset.name}, truth {inputs.truths[0]}"),
    )


def _show(proposals: Sequence[Proposal], where: str) -> None:
    severities = ("Major", "Minor", None)
    count = Counter((proposal.category, proposal.severity) for proposal in proposals)
    categories = sorted({p.category for p in proposals}, key=lambda name: (name == "Other", name))
    total = max(1, len(proposals))

    def row(name: str, chosen: Sequence[str]) -> list[str]:
        cells = [sum(count[category, severity] for category in chosen) for severity in severities]
        return [name, *(f"{n:,}" for n in cells), f"{sum(cells):,}", f"{sum(cells) / total:.1%}"]

    print_table(
        f"{len(proposals):,} mistakes on {where}: proposed category, suggested severity",
        ["category", "Major", "Minor", "not clear", "all", "share"],
        [*(row(category, [category]) for category in categories), row("all", categories)],
    )
