"""``heldout mistakes``: what models get wrong; one module a sub-command, registered here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from heldout.cli.console import note, out, print_table, say
from heldout.cli.mistakes_study import (
    MistakesOption,
    SaveOutputOption,
    SetOption,
    TopOption,
    accuracy,
    confusions,
    consensus,
    cooccurrence,
    diff,
    hand_over,
    overlap,
    panel,
    queue,
    read_inputs,
    slices,
    summary,
)
from heldout.cli.options import (
    ClassesOption,
    ExcludeOption,
    ImagesOption,
    JsonOption,
    LabelMapOption,
    LevelOption,
    ModelOption,
    SeedOption,
    TruthOption,
    WorkspaceOption,
)

if TYPE_CHECKING:
    from heldout.cli.mistakes_study import Inputs
    from heldout.data.labels.label_map import LabelMap
    from heldout.measure.mistakes.categories import Proposal
    from heldout.measure.mistakes.evidence import Knowledge
    from heldout.measure.mistakes.quality import Quality
    from heldout.measure.mistakes.verdicts import Mistakes
    from heldout.models.predictions import Predictions


Verdicts = Mapping[tuple[str, str], tuple[str, str]]

PeerOption = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        help="Other models whose stored guesses are evidence: name or glob; repeatable; all that have "
        "seen the set by default; none for none.",
    ),
]
SuperclassesOption = Annotated[
    Path | None,
    typer.Option(
        help="Superclasses: JSON {name: [classes]} or [[classes]], or CSV superclass,class."
    ),
]
AffinityOption = Annotated[
    Path | None,
    typer.Option(
        help="How alike classes are: a matrix (.npy) or confusions (.json); from the peers' best "
        "guesses by default."
    ),
]
TogetherOption = Annotated[
    str,
    typer.Option(
        "--seen-together",
        help="Truth whose labels say which classes are seen together; auto: one of several labels an "
        "image, if there is one; none: do without.",
    ),
]
PrototypesOption = Annotated[
    str | None,
    typer.Option(
        help="How typical images are: a column of numbers, a CSV (image_id, typicality), or vectors: "
        "closeness to the class's mean image vector."
    ),
]
JudgedOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--judged",
        help="Judged mistakes to learn from: published JSON or judgements; repeatable; the workspace's "
        "judgements by default.",
    ),
]
CollapseAutoOption = Annotated[
    str,
    typer.Option(
        help="Classes that are no mistake where another is right: imagenet-1k, a JSON or TOML file; "
        "auto: a built-in table about these classes; none."
    ),
]
ImageVectorsOption = Annotated[
    Path | None,
    typer.Option(
        help="Image vectors of an image-text encoder: those of heldout annotate (a folder), or .npz of "
        "image_ids and vectors."
    ),
]
TextVectorsOption = Annotated[
    Path | None, typer.Option(help="Its text vectors: .npz of texts and vectors.")
]
EncoderOption = Annotated[
    str | None,
    typer.Option(
        help="Image-text encoder for what is out of vocabulary: conse, open_clip:ARCH/TAG, "
        "onnx-pair:FOLDER, file.py:object; looks at the images."
    ),
]


@dataclass(frozen=True)
class Sources:
    """Where knowledge comes from, as given on the command line."""

    peers: Sequence[str] | None = None
    superclasses: Path | None = None
    collapse: str = "auto"
    affinity: Path | None = None
    together: str = "auto"
    prototypes: str | None = None
    image_vectors: Path | None = None
    text_vectors: Path | None = None
    encoder: str | None = None
    images: str | None = None


def gathered(
    inputs: Inputs, sources: Sources, mistakes: Sequence[Mistakes], label_map: LabelMap | None
) -> Knowledge:
    """The knowledge that options name, about these mistakes."""
    from dataclasses import replace

    import pyarrow as pa
    import pyarrow.compute as pc

    from heldout.core.errors import UserError
    from heldout.measure.mistakes.evidence import (
        OutOfVocabulary,
        Vectors,
        gather_knowledge,
        names_of_nodes,
        typicality,
    )
    from heldout.models.adapters import load_encoder
    from heldout.models.embeddings import embed, read_embeddings
    from heldout.models.predictions.import_arrays import first_labels

    testset, truth = inputs.testset, inputs.truths[0]
    by_vectors = sources.prototypes == "vectors"
    knowledge = gather_knowledge(
        testset,
        truth=truth,
        predictions=_peers(inputs, sources.peers, label_map),
        label_map=label_map,
        superclasses=sources.superclasses,
        collapse=sources.collapse,
        affinity=sources.affinity,
        seen_together=sources.together,
        prototypes=None if by_vectors else sources.prototypes,
    )
    encoder = None if sources.encoder is None else load_encoder(sources.encoder)
    vectors: Vectors | None = None
    if sources.image_vectors is not None:
        vectors = Vectors(read_embeddings(sources.image_vectors))
    elif encoder is not None:
        pool = testset
        if not by_vectors:
            wanted = pa.array({image for group in mistakes for image in group.image_ids})
            pool = replace(
                pool, images=pool.images.filter(pc.is_in(testset.image_ids, value_set=wanted))
            )
        made = embed(pool, encoder, workspace=inputs.workspace, images=sources.images)
        vectors = Vectors(made)
    if by_vectors:
        if vectors is None:
            raise UserError("no image vectors", fix="give --image-vectors or --encoder")
        labels = {m.image_id: m.original for group in mistakes for m in group if m.original}
        ids, own = testset.image_ids.to_pylist(), first_labels(testset).tolist()
        classes = testset.label_space.ids
        labels |= {i: classes[label] for i, label in zip(ids, own, strict=True) if label >= 0}
        knowledge = replace(knowledge, prototypes=typicality(vectors, labels))
    if vectors is None or (encoder is None and sources.text_vectors is None):
        return knowledge
    if knowledge.hierarchy is None:
        note("no hierarchy: what is out of vocabulary cannot be looked for")
        return knowledge
    texts = Vectors(read_embeddings(sources.text_vectors)) if sources.text_vectors else vectors
    outsiders = OutOfVocabulary(
        space=knowledge.space,
        hierarchy=knowledge.hierarchy,
        names=names_of_nodes(knowledge.space, knowledge.hierarchy),
        images=vectors,
        encode=texts.encode if encoder is None else encoder.encode_texts,
        scale=100.0 if encoder is None else encoder.scale,
    )
    return replace(knowledge, outsiders=outsiders)


def _peers(
    inputs: Inputs, choice: Sequence[str] | None, label_map: LabelMap | None
) -> list[Predictions] | None:
    from heldout.core.errors import NotFound
    from heldout.measure.evaluation.flow import stored_predictions

    if choice and list(choice) == ["none"]:
        return None
    try:
        found = stored_predictions(inputs.testset, list(choice or []), workspace=inputs.workspace)
        kept = list(_readable(found, inputs, label_map))
    except NotFound:
        if choice:
            raise
        kept = []
    if not kept:
        note("no other models have seen these images: no evidence from peers")
        return None
    return kept


def _readable(
    predictions: Iterator[Predictions], inputs: Inputs, label_map: LabelMap | None
) -> Iterator[Predictions]:
    from dataclasses import replace

    readable = {inputs.testset.label_space.fingerprint}
    if label_map is not None:
        readable.add(label_map.source.fingerprint)
    for model in predictions:
        if model.label_space.fingerprint in readable:
            yield replace(model, logits=None, features=None, stored_hash=model.hash)
        else:
            note(f"{model.model} predicts {model.label_space.name}: not asked as a peer")


def judged_verdicts(inputs: Inputs, files: Sequence[Path] | None) -> dict[str, Verdicts]:
    """Judged mistakes by where they come from: files, or the workspace's judgements."""
    from heldout.data.judgements.for_testset import judgements_about
    from heldout.measure.mistakes.categories import decided
    from heldout.measure.mistakes.panel import judged_kinds, read_mistake_file

    space = inputs.testset.label_space
    if files:
        return {
            path.name: decided(read_mistake_file(path, label_space=space).verdicts)
            for path in files
        }
    answers = judgements_about(inputs.testset, inputs.workspace.judgements, questions=["mistake"])
    found = decided(judged_kinds(answers))
    return {"the workspace": found} if found else {}


def located(inputs: Inputs, verdicts: Verdicts, *, where: str) -> Mistakes:
    """Judged pairs as mistakes under the truth; what does not fit is noted."""
    from heldout.measure.mistakes.verdicts import mistakes_at

    truth = inputs.truths[0]
    found, unknown, right = mistakes_at(inputs.testset, verdicts, truth=truth)
    if unknown:
        note(f"{where}: {unknown:,} judged mistakes are not in truth {truth}")
    if right:
        note(f"{where}: {right:,} judged mistakes are right by truth {truth}: left out")
    return found


def merged(parts: Mapping[str, Verdicts]) -> dict[tuple[str, str], tuple[str, str]]:
    """The verdicts of several sources as one; where two differ, the first that was named counts."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for verdicts in parts.values():
        for key, answer in verdicts.items():
            found.setdefault(key, answer)
    return found


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
    collapse: CollapseAutoOption = "auto",
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    exclude: ExcludeOption = None,
    seed: SeedOption = 0,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Propose a category for every mistake, with evidence; suggest how bad it is. People decide."""
    from heldout.core.errors import NotApplicable
    from heldout.core.records import Count
    from heldout.measure.evaluation.flow import label_map_argument
    from heldout.measure.mistakes.categories import propose as propose_by
    from heldout.measure.mistakes.categories import propose_learning, write_proposals
    from heldout.measure.mistakes.evidence import evidence_table
    from heldout.measure.mistakes.verdicts import mistakes_of

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
    verdicts = merged(parts)
    known = located(inputs, verdicts, where=", ".join(parts))
    mapped = label_map_argument(
        label_map, [inputs.testset.name], inputs.models, workspace=inputs.workspace
    )
    knowledge = gathered(inputs, sources, [listed, known], mapped)
    table = evidence_table(listed, knowledge)
    proposals: tuple[Proposal, ...] | None = None
    if len(known):
        try:
            proposals = propose_learning(
                table, evidence_table(known, knowledge), verdicts, seed=seed
            )
            note(f"learned from {len(known):,} judged mistakes of {', '.join(parts)}")
        except NotApplicable as error:
            if judged:
                raise
            note(error.message)
    if proposals is None:
        proposals = propose_by(table)
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
            **msgspec.to_builtins(proposal),
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
    collapse: CollapseAutoOption = "auto",
    label_map: LabelMapOption = None,
    classes: ClassesOption = None,
    level: LevelOption = 0.95,
    replicates: Annotated[int, typer.Option(help="Bootstrap replicates.")] = 2000,
    seed: SeedOption = 0,
    save: SaveOutputOption = None,
    as_json: JsonOption = False,
    workspace: WorkspaceOption = None,
) -> None:
    """Cross-validate proposals on judged mistakes: kappa beside the most frequent category's, severity."""
    from heldout.core.errors import NotFound
    from heldout.measure.evaluation.flow import label_map_argument
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
    knowledge = gathered(inputs, sources, [mistakes], mapped)
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
    hand_over([], rows, as_json=as_json, save=save, show=lambda: _quality_show(found))


def _quality_show(found: Quality) -> None:
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


app = typer.Typer(
    help="What models get wrong: confusions, consensus, overlap, categories, severity.",
    no_args_is_help=True,
)
app.command("summary")(summary)
app.command("confusions")(confusions)
app.command("consensus")(consensus)
app.command("overlap")(overlap)
app.command("diff")(diff)
app.command("cooccurrence")(cooccurrence)
app.command("propose")(propose)
app.command("quality")(quality)
app.command("queue")(queue)
app.command("panel")(panel)
app.command("accuracy")(accuracy)
app.command("slices")(slices)
