"""Whether judgements are about something that a test set has."""

from __future__ import annotations

from heldout.core.errors import LabelError, MismatchError
from heldout.data.judgements.judgement import Judgement
from heldout.data.testset import TestSet

_IMAGES = ("image_id", "other_id")
_CLASSES = ("class_id", "other_class_id", "prediction")


class SubjectCheck:
    """Refuses judgements about images and classes that a test set does not have."""

    def __init__(self, testset: TestSet) -> None:
        self._testset = testset
        self._images = set(testset.image_ids.to_pylist())
        self._classes = set(testset.label_space.ids)

    def __call__(self, judgement: Judgement) -> None:
        """Refuse ``judgement`` if its subject names something unknown."""
        for name in _IMAGES:
            image = judgement.subject.get(name)
            if image is not None and image not in self._images:
                raise MismatchError(
                    f"image {image!r} is not in test set {self._testset.name}",
                    fix="name the test set that was judged with -t",
                )
        for name in _CLASSES:
            label = judgement.subject.get(name)
            if label is not None and label not in self._classes:
                raise LabelError(
                    f"class {label!r} is not in label space {self._testset.label_space.name}",
                    fix="use the ids of its classes; heldout labels find looks them up",
                )
