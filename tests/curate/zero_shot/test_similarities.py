from __future__ import annotations

import numpy as np
import pytest

from heldout.core.errors import UserError
from heldout.curate.zero_shot.assign import (
    assign,
    class_vectors,
    parse_similarities,
    temperatures_of,
)


def test_names_become_columns() -> None:
    found = parse_similarities(
        "cosine, softmax@1,softmax@0.5,margin,lse@1,cosine,softmax@scale", scale=99.99999
    )
    assert [each.column for each in found] == [
        "similarity_cosine",
        "similarity_softmax_1",
        "similarity_softmax_0.5",
        "margin",
        "similarity_lse_1",
        "similarity_softmax_100",
    ]
    assert temperatures_of(found) == (1.0, 0.5, 100.0)


@pytest.mark.parametrize(
    "bad", ["cosin", "softmax", "cosine@1", "softmax@x", "softmax@0", "softmax@nan", ""]
)
def test_unknown_names_are_refused(bad: str) -> None:
    with pytest.raises(UserError, match="softmax@"):
        parse_similarities(bad)


def test_scale_needs_an_encoder() -> None:
    with pytest.raises(UserError, match="as a number"):
        parse_similarities("softmax@scale")


def test_values_are_what_the_names_say() -> None:
    """T = 1 is the published definition: the largest share of a softmax over raw cosines."""
    images = np.float32([[1, 0.5, 0.1], [0.2, 1, 0.9]])
    classes = np.float32([[1, 0, 0], [0, 1, 0], [0, 0, 1]])
    found = assign(images, class_vectors(classes), temperatures=[1, 100])
    cosines = images / np.linalg.norm(images, axis=1, keepdims=True)
    shares = np.exp(cosines) / np.exp(cosines).sum(axis=1, keepdims=True)
    ordered = np.sort(cosines, axis=1)
    expected = {
        "similarity_cosine": ordered[:, -1],
        "similarity_softmax_1": shares.max(axis=1),
        "margin": ordered[:, -1] - ordered[:, -2],
        "similarity_lse_1": np.log(np.exp(cosines).sum(axis=1)),
    }
    for each in parse_similarities("cosine,softmax@1,margin,lse@1"):
        np.testing.assert_allclose(each.values(found), expected[each.column], rtol=1e-5)
