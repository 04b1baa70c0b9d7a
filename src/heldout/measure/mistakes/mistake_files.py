"""Files of judged mistakes: the published JSON, or our own table of judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from heldout.core.errors import BadFile
from heldout.core.files import existing_file, read_json
from heldout.data.importing.judgements import TABLES
from heldout.data.judgements.consensus import consensus
from heldout.data.judgements.formats import read_judgements
from heldout.data.labels.label_space import LabelSpace
from heldout.data.published.mistakes import read_mistakes

Key = tuple[str, str]


@dataclass(frozen=True)
class MistakeFile:
    """Mistakes with their category and severity, one verdict an (image, prediction).

    ``verdicts``   (image id, class id) to (category, severity), sorted; ``unclear`` where several
                   reviewers do not agree
    ``respelled``  mistakes whose category the file spells in another way than the rest
    """

    path: Path
    verdicts: Mapping[Key, tuple[str, str]]
    respelled: int = 0

    @property
    def name(self) -> str:
        """What to call the model whose mistakes these are: ``vit3b`` of ``vit3b_mistakes.json``."""
        return self.path.stem.removesuffix("_mistakes")

    def __len__(self) -> int:
        return len(self.verdicts)

    def table(self, *, fold: bool = False) -> dict[tuple[str, str], int]:
        """How many mistakes each (category, severity) has; ``fold`` counts Borderline as Minor."""
        counts: dict[tuple[str, str], int] = {}
        for category, severity in self.verdicts.values():
            key = (category, "Minor" if fold and severity == "Borderline" else severity)
            counts[key] = counts.get(key, 0) + 1
        return dict(sorted(counts.items()))


def read_mistake_file(path: Path, *, label_space: LabelSpace) -> MistakeFile:
    """The published JSON, or a table of judgements (.jsonl, .csv, .parquet) with majority verdicts."""
    existing_file(path, "file of mistakes")
    if path.suffix.lower() in TABLES:
        return MistakeFile(path, _from_table(path))
    verdicts = {}
    for judgement in read_mistakes(path, classes=label_space.ids):
        answer = judgement.answer
        if isinstance(answer, Mapping):
            key = (judgement.subject["image_id"], judgement.subject["prediction"])
            verdicts[key] = (answer["category"], answer["severity"])
    if not verdicts:
        raise BadFile(path, "names no mistakes", fix="choose the right file")
    published = read_json(path)
    respelled = sum(
        published[image]["failure category"] != category
        for (image, _), (category, _) in verdicts.items()
    )
    return MistakeFile(path, dict(sorted(verdicts.items())), respelled)


def _from_table(path: Path) -> dict[Key, tuple[str, str]]:
    judgements = [j for j in read_judgements(path, question="mistake") if j.question == "mistake"]
    if not judgements:
        raise BadFile(path, "holds no judgements of mistakes", fix="choose the right file")
    parts = []
    for part in ("category", "severity"):
        found = consensus(judgements, part=part)
        parts.append(
            {tuple(v.subject[n] for n in ("image_id", "prediction")): v.answer for v in found}
        )
    categories, severities = parts
    return {
        (image, prediction): (categories[image, prediction], severities[image, prediction])
        for image, prediction in sorted(categories)
    }


@dataclass(frozen=True, kw_only=True)
class FileAgreement:
    """What two files say of the same mistakes.

    ``images``  images that both name; ``shared`` (image, prediction) pairs that both judge, of which
    so many get the same category, the same severity, and both
    """

    first: str
    second: str
    images: int
    shared: int
    same_category: int
    same_severity: int
    same: int


def file_agreement(one: MistakeFile, other: MistakeFile) -> FileAgreement:
    """Whether two files agree on what both judge."""
    shared = [
        (verdict, other.verdicts[key])
        for key, verdict in one.verdicts.items()
        if key in other.verdicts
    ]
    images = {image for image, _ in one.verdicts} & {image for image, _ in other.verdicts}
    return FileAgreement(
        first=one.name,
        second=other.name,
        images=len(images),
        shared=len(shared),
        same_category=sum(a[0] == b[0] for a, b in shared),
        same_severity=sum(a[1] == b[1] for a, b in shared),
        same=sum(a == b for a, b in shared),
    )
