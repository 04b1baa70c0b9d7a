"""ImageNet-M: the validation images that strong models still get plainly wrong.

Vasudevan et al.: When does dough become a bagel? NeurIPS 2022. The released list has 68 images;
a model's result is how many of them it gets right under the multi-label truth.
"""

from __future__ import annotations

from pathlib import Path

from heldout.core.errors import BadFile, MismatchError, NotFound
from heldout.core.files import existing_file, read_json, sha256_file
from heldout.data.published.truth_file import match_images
from heldout.data.testset.subset import subset
from heldout.data.testset.testset import TestSet

CITATION = (
    "Vasudevan, Caine, Gontijo-Lopes, Fridovich-Keil, Roelofs: When does dough become a bagel? "
    "Analyzing the remaining mistakes on ImageNet, NeurIPS 2022"
)


def read_image_list(path: Path) -> list[str]:
    """File names from a text file (one per line), a JSON list, or the key ``imagenet_m`` of TFDS's
    source JSON. Empty lines and lines that start with ``#`` are left out; a repeat is refused.
    """
    existing_file(path, "list of images")
    if path.suffix.lower() == ".json":
        value = read_json(path)
        if isinstance(value, dict):
            value = value.get("imagenet_m")
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise BadFile(
                path,
                "is neither a list of file names nor an object with a list imagenet_m",
                fix="give a JSON list, a text file, or human_accuracy_v3.0.0.json of TFDS",
            )
        names = [item.strip() for item in value]
    else:
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            raise BadFile(path, f"is not text in UTF-8 ({error})", fix="save it as UTF-8") from None
        names = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not names or not all(names):
        raise BadFile(
            path, "lists no images" if not names else "has an empty name", fix="name each image"
        )
    repeated = (
        sorted({name for name in names if names.count(name) > 1})
        if len(names) != len(set(names))
        else []
    )
    if repeated:
        raise BadFile(path, f"names {repeated[0]!r} twice", fix="name each image once")
    return names


def read_imagenet_m(
    path: Path, *, parent: TestSet, truth: str | None = None, name: str = "imagenet-m"
) -> TestSet:
    """ImageNet-M as a subset of ``parent``, judged by its multi-label truth.

    ``truth`` names that truth; without it, the first of kind ``multilabel``. It becomes the
    default truth. Every image of the list must be in the parent and have that truth.
    """
    names = read_image_list(path)
    judge = _multilabel_truth(parent, truth)
    match = match_images(parent, names, source=path.name)
    absent = [given for given, found in zip(names, match.image_ids, strict=True) if found is None]
    if absent:
        raise MismatchError(
            f"{path.name}: {len(absent)} of {len(names)} images are not in test set {parent.name}, "
            f"such as {absent[0]!r}",
            fix="give the test set that the list was made from",
        )
    chosen = [image for image in match.image_ids if image is not None]
    judged = set(parent.truth(judge)["image_id"].to_pylist())
    without = [image for image in chosen if image not in judged]
    if without:
        raise MismatchError(
            f"{path.name}: {len(without)} of {len(names)} images have no truth {judge} in "
            f"{parent.name}, such as {without[0]!r}",
            fix="name another truth, or add the multi-label truth of these images",
        )
    file = {"file": path.name, "sha256": sha256_file(path)}
    return subset(
        parent,
        chosen,
        name=name,
        recipe={"name": "imagenet-m", "parameters": {"truth": judge}, "seed": None},
        truths=[judge, *(other for other in parent.truths if other != judge)],
        parents=[file],
        citation=CITATION,
        notes=[f"images matched by {match.to_dict()['rule']}"],
    )


def _multilabel_truth(parent: TestSet, truth: str | None) -> str:
    if truth is not None:
        parent.truth(truth)  # refuses a name that is not there
        return truth
    for name, where in parent.card.truths.items():
        if where.get("kind") == "multilabel":
            return name
    raise NotFound(
        f"test set {parent.name} has no multi-label truth",
        fix="add one with heldout import truth, from multilabel.csv or human_accuracy_v3.0.0.json",
    )
