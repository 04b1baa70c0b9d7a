"""What proposals are made from, as options: other models, superclasses, likeness, judged mistakes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heldout.cli.console import note

if TYPE_CHECKING:
    from heldout.cli.mistakes_inputs import Inputs
    from heldout.data.labels.label_map import LabelMap
    from heldout.measure.mistakes.evidence import Knowledge, OutOfVocabulary, Vectors
    from heldout.measure.mistakes.verdicts import Mistake
    from heldout.models.adapters.model import Encoder
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
CollapseOption = Annotated[
    str,
    typer.Option(
        help="Classes that are no mistake where another is right: imagenet-1k, a JSON or TOML file; "
        "auto: a built-in table about these classes; none."
    ),
]
ImageVectorsOption = Annotated[
    Path | None,
    typer.Option(help="Image vectors of an image-text encoder: .npz of image_ids and vectors."),
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
    inputs: Inputs, sources: Sources, mistakes: Sequence[Mistake], label_map: LabelMap | None
) -> Knowledge:
    """The knowledge that options name, about these mistakes."""
    from dataclasses import replace

    from heldout.core.errors import UserError
    from heldout.measure.mistakes.evidence import (
        gather_knowledge,
        image_vectors,
        names_of_nodes,
        read_vectors,
        typicality,
    )

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
    encoder = None
    if sources.encoder is not None:
        from heldout.models.adapters import load_encoder

        encoder = load_encoder(sources.encoder)
    vectors: Vectors | None = None
    if sources.image_vectors is not None:
        vectors = read_vectors(sources.image_vectors, names="image_ids")
    elif encoder is not None:
        wanted = testset.image_ids.to_pylist() if by_vectors else [m.image_id for m in mistakes]
        vectors = image_vectors(encoder, testset, wanted, images=sources.images)
    if by_vectors:
        if vectors is None:
            raise UserError("no image vectors", fix="give --image-vectors or --encoder")
        labels = {m.image_id: m.original for m in mistakes if m.original is not None}
        labels |= _own_labels(inputs)
        knowledge = replace(knowledge, prototypes=typicality(vectors, labels))
    if vectors is None or (encoder is None and sources.text_vectors is None):
        return knowledge
    if knowledge.hierarchy is None:
        note("no hierarchy: what is out of vocabulary cannot be looked for")
        return knowledge
    return replace(
        knowledge,
        outsiders=_outsiders(
            knowledge,
            vectors,
            encoder,
            sources.text_vectors,
            names_of_nodes(knowledge.space, knowledge.hierarchy),
        ),
    )


def _outsiders(
    knowledge: Knowledge,
    vectors: Vectors,
    encoder: Encoder | None,
    texts: Path | None,
    names: Mapping[str, str],
) -> OutOfVocabulary:
    from heldout.core.errors import UserError
    from heldout.measure.mistakes.evidence import OutOfVocabulary, read_vectors, texts_from

    tree = knowledge.hierarchy
    if tree is None or (encoder is None and texts is None):
        raise UserError("no texts to compare images with", fix="give --text-vectors or --encoder")
    if encoder is not None:
        return OutOfVocabulary.of_encoder(
            encoder, vectors, space=knowledge.space, hierarchy=tree, names=names
        )
    known = read_vectors(texts, names="texts") if texts is not None else vectors
    return OutOfVocabulary(
        space=knowledge.space, hierarchy=tree, names=names, images=vectors, encode=texts_from(known)
    )


def _own_labels(inputs: Inputs) -> dict[str, str]:
    from heldout.models.predictions.import_arrays import first_labels

    space = inputs.testset.label_space
    ids, labels = inputs.testset.image_ids.to_pylist(), first_labels(inputs.testset).tolist()
    return {image: space.ids[label] for image, label in zip(ids, labels, strict=True) if label >= 0}


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
    kinds = judged_kinds(answers)
    found = decided({key: (category, severity) for key, (category, severity, _) in kinds.items()})
    return {"the workspace": found} if found else {}


def located(inputs: Inputs, verdicts: Verdicts, *, where: str) -> tuple[Mistake, ...]:
    """Judged pairs as mistakes under the truth; what does not fit is noted."""
    from heldout.measure.mistakes.evidence import mistakes_at

    found = mistakes_at(inputs.testset, verdicts, truth=inputs.truths[0])
    if found.unknown:
        note(f"{where}: {found.unknown:,} judged mistakes are not in truth {inputs.truths[0]}")
    if found.right:
        note(
            f"{where}: {found.right:,} judged mistakes are right by truth {inputs.truths[0]}: left out"
        )
    return found.mistakes


def merged(parts: Mapping[str, Verdicts]) -> dict[tuple[str, str], tuple[str, str]]:
    """The verdicts of several sources as one; where two differ, the first that was named counts."""
    found: dict[tuple[str, str], tuple[str, str]] = {}
    for verdicts in parts.values():
        for key, answer in verdicts.items():
            found.setdefault(key, answer)
    return found
