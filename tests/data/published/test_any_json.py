"""Whatever a file holds, a reader gives a pool or one line that says what is wrong.

Files of the right shape get a few values changed, dropped, moved and cut, so that most of each is
still read and every place of the layout is met with a value that does not belong there.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heldout.core.errors import UserError
from heldout.data.importing.pools import collect
from heldout.data.published.options import ReaderOptions
from heldout.data.testset.testset import save
from heldout.data.testset.verify import verify

BOX = {"x": 1, "y": 2, "w": 30, "h": 40}
SIZE = {"width": 100, "height": 80}
CAT = {"name": "cat", "attributes": ["black", "big"], **BOX}
RELATED = {"relations": [{"name": "on", "object": "2"}]}
NAMED = {"names": ["cat"], "synsets": ["cat.n.01"], "attributes": ["black"], **BOX}
LISTED = {"images": [{"id": 1, "file_name": "1.jpg", "license": 3, **SIZE}, {"id": 2}]}
FILES: dict[str, list[Any]] = {
    "gqa": [
        {
            "1": {"objects": {"1": CAT | RELATED, "2": {"name": "mat"}}, "location": "in", **SIZE},
            "2": {"objects": {"1": CAT}, "weather": "sunny", **SIZE},
        }
    ],
    "visual-genome": [
        [{"image_id": 1, "objects": [NAMED, NAMED]}, {"image_id": 2, "objects": [NAMED]}],
        [
            {
                "image_id": 1,
                "relationships": [{"predicate": "on", "subject": NAMED, "object": NAMED}],
            }
        ],
        [{"image_id": 1, "url": "https://host/1.jpg", **SIZE}, {"image_id": 2, **SIZE}],
    ],
    "coco": [
        {
            "licenses": [{"id": 3, "url": "https://host/licence"}],
            **LISTED,
            "annotations": [
                {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40]},
                {"id": 2, "image_id": 2, "category_id": 2, "bbox": [1, 2, 30, 40]},
            ],
            "categories": [
                {"id": 1, "name": "cat", "supercategory": "animal"},
                {"id": 2, "name": "mat"},
            ],
        },
        [{"image_id": 1, "category_id": 1, "bbox": [1, 2, 30, 40], "score": 0.9}],
    ],
    "coco-captions": [
        {
            **LISTED,
            "annotations": [
                {"image_id": 1, "caption": "Two cats, one hot dog."},
                {"image_id": 2, "caption": "a cat"},
            ],
        }
    ],
    "metashift": [
        {"cat(black)": ["1", "2"], "cat(white)": ["2"], "dog(black)": ["3", 4]},
        {"color": {"cat": {"black": ["1"], "white": ["2"]}}, "size": {"dog": {"big": ["1"]}}},
    ],
}
OPTIONS = {
    "gqa": ReaderOptions(min_box_area=0.1, relations=True),
    "visual-genome": ReaderOptions(min_box_area=0.1, relations=True),
    "coco": ReaderOptions(min_box_area=0.1),
    "coco-captions": ReaderOptions(fold_plurals=True),
    "metashift": ReaderOptions(contexts="object"),
}
ODD = st.sampled_from(
    [math.nan, math.inf, -math.inf, 10**400, -1, 0, 1.5, "", " ", "cat", "\ud800", "\0", "a/../b",
     None, True, "1", 1, 2, "cats (2)", ":)", "cat(x)", [], {}, [[]], [None], {"1": 5}, {"": ""}]
)  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a value: (container, key)."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def changed(value: Any, data: Any) -> Any:
    """The value with a few of its places changed."""
    value = copy.deepcopy(value)
    for _ in range(data.draw(st.integers(0, 4))):
        every = list(places(value))
        if not every:
            return copy.deepcopy(data.draw(ODD))
        container, key = every[data.draw(st.integers(0, len(every) - 1))]
        how = data.draw(st.sampled_from(["change", "drop", "repeat", "move"]))
        if how == "change":
            container[key] = copy.deepcopy(data.draw(ODD))
        elif how == "drop":
            del container[key]
        elif how == "repeat" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        else:
            other, place = every[data.draw(st.integers(0, len(every) - 1))]
            container[key] = copy.deepcopy(other[place])
    return value


@pytest.mark.parametrize("source", sorted(FILES))
@given(st.data())
@settings(max_examples=120)
def test_any_json(tmp_path_factory: Any, source: str, data: Any) -> None:
    folder = tmp_path_factory.mktemp("any")
    paths = []
    for place, value in enumerate(FILES[source]):
        if source == "metashift" or data.draw(st.booleans()):
            text = json.dumps(changed(value, data))
            cut = data.draw(st.just(len(text)) | st.integers(0, len(text)))
            paths.append(folder / f"{place}.json")
            paths[-1].write_text(text[:cut], "utf-8")
    for options in (OPTIONS[source], ReaderOptions()):
        try:
            found = collect(source, paths, options=options)
        except UserError as error:
            assert "\n" not in error.line and len(error.line) < 700
        else:
            save(found.pool, folder / "pool", replace=True)
            assert verify(folder / "pool").ok
            assert len(found.pool) == found.report.counts["images"] > 0


@pytest.mark.parametrize("source", sorted(FILES))
def test_unchanged_they_are_read_without_a_word(tmp_path_factory: Any, source: str) -> None:
    for place, value in enumerate(FILES[source]):
        if source == "coco" and place:
            continue  # detections need a file of images
        path = tmp_path_factory.mktemp("plain") / f"{place}.json"
        path.write_text(json.dumps(value))
        found = collect(source, [path])
        assert found.report.problems == ()
        assert found.report.counts["memberships"] > 0 or "width" in json.dumps(value)
