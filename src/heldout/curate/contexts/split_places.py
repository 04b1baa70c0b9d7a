"""Indoor and outdoor groups from the objects in images, as MetaShift's COCO set has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from heldout.core.errors import UserError
from heldout.curate.contexts.names import subset_name
from heldout.curate.contexts.split_groups import Groups

_COCO_KINDS = {
    "furniture": ("chair", "couch", "potted plant", "bed", "dining table", "toilet"),
    "kitchen": ("bottle", "wine glass", "cup", "fork", "knife", "spoon", "bowl"),
    "electronic": ("tv", "laptop", "mouse", "remote", "keyboard", "cell phone"),
    "appliance": ("microwave", "oven", "toaster", "sink", "refrigerator"),
    "indoor": ("book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush"),
    "vehicle": ("bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat"),
    "outdoor": ("traffic light", "fire hydrant", "stop sign", "parking meter", "bench"),
    "sports": (
        *("frisbee", "skis", "snowboard", "sports ball", "kite", "baseball bat"),
        *("baseball glove", "skateboard", "surfboard", "tennis racket"),
    ),
}
COCO_INDOOR = frozenset(
    name
    for kind in ("indoor", "kitchen", "electronic", "appliance", "furniture")
    for name in _COCO_KINDS[kind]
)
"""COCO's categories of the kinds indoor, kitchen, electronic, appliance and furniture."""

COCO_OUTDOOR = frozenset(
    name for kind in ("outdoor", "vehicle", "sports") for name in _COCO_KINDS[kind]
)
"""COCO's categories of the kinds outdoor, vehicle and sports."""


def place_groups(
    objects: Iterable[tuple[str, str]],
    subjects: Sequence[str],
) -> Groups:
    """Groups ``subject(indoor)`` and ``subject(outdoor)`` from the objects in each image.

    ``objects``   (image, object name) pairs, in any order, repeated or not
    ``subjects``  classes, such as cat and dog; an image with two of them is dropped

    An image is indoor if it shows an indoor object besides the subject, outdoor likewise; one with
    both is dropped, and one with neither has no group. The published notebook pairs object i with
    object j only for i < j, so that no cat meets a car, a bench or a person, which COCO lists
    before it; here every object counts, whatever its place in the list.
    """
    if len(set(subjects)) < len(subjects) or not subjects:
        raise UserError("subjects are missing or repeated", fix="name each class once")
    shown: dict[str, set[str]] = {}
    for image, name in objects:
        shown.setdefault(image, set()).add(name)
    places = {"indoor": COCO_INDOOR, "outdoor": COCO_OUTDOOR}
    found: dict[str, list[str]] = {
        subset_name(subject, place): [] for subject in subjects for place in places
    }
    dropped = {"two of the classes": 0, "indoor and outdoor objects": 0, "neither kind": 0}
    for image in sorted(shown):
        mine = [subject for subject in subjects if subject in shown[image]]
        if not mine:
            continue
        others = shown[image] - {mine[0]}
        where = [place for place, names in places.items() if others & names]
        if len(mine) > 1:
            dropped["two of the classes"] += 1
        elif len(where) > 1:
            dropped["indoor and outdoor objects"] += 1
        elif not where:
            dropped["neither kind"] += 1
        else:
            found[subset_name(mine[0], where[0])].append(image)
    notes = tuple(f"{n} images show {what} and are left out" for what, n in dropped.items() if n)
    return Groups({group: tuple(images) for group, images in found.items()}, notes)
