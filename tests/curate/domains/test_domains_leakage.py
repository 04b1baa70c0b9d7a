"""What labels tell about domains, against sums over single images."""

from __future__ import annotations

from collections import Counter
from math import log2

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.curate.domains.label_leakage import Leakage, demonyms, leakage
from heldout.curate.domains.recipe import count_rows
from heldout.curate.domains.selection import Counts
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.wordnet import load_built_in

SPACE = LabelSpace.from_ids("letters", "abcd")


def report(pairs: list[tuple[str, str]], space: LabelSpace = SPACE) -> Leakage:
    table = pa.table({"class_id": [c for c, _ in pairs], "place": [d for _, d in pairs]})
    return leakage(count_rows(table, "place"), space)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y", "z"])),
        min_size=1,
        max_size=60,
    )
)
def test_it_equals_sums_over_images(pairs: list[tuple[str, str]]) -> None:
    found = report(pairs)
    n = len(pairs)
    both, classes, places = (
        Counter(pairs),
        Counter(c for c, _ in pairs),
        Counter(d for _, d in pairs),
    )
    plain = sum(k / n * log2(k * n / (classes[c] * places[d])) for (c, d), k in both.items())
    entropy = -sum(k / n * log2(k / n) for k in places.values())
    assert found.information_plain == pytest.approx(plain, abs=1e-9)
    assert found.domain_entropy == pytest.approx(entropy, abs=1e-9)
    assert 0 <= found.information <= found.domain_entropy + 1e-12
    for leak in found.classes:
        assert leak.share == max(both[leak.class_id, d] for d in places) / classes[leak.class_id]
        assert leak.low <= leak.share <= leak.high


def test_labels_that_say_nothing_explain_nothing_and_labels_that_say_all_explain_all() -> None:
    rng = np.random.default_rng(0)
    nothing = [
        (str(c), str(d))
        for c, d in zip(rng.choice(list("abcd"), 4000), rng.choice(list("xyz"), 4000), strict=True)
    ]
    assert report(nothing).explained < 0.001
    # Uncorrected, few images of many classes look as if they told something.
    few = report(nothing[:40])
    assert few.information < few.information_plain
    whole = report([("a", "x"), ("b", "y"), ("c", "z")] * 400)
    assert whole.explained > 0.99
    assert whole.concentrated == {"0.8": 3, "0.9": 3}


def test_cells_without_images_do_not_count() -> None:
    counts = Counts(("a", "b"), ("x", "y", "z"), np.array([[4, 0, 1], [0, 0, 0]]))
    found = leakage(counts, SPACE)
    assert found.domains == {"x": 4, "z": 1}
    assert [leak.class_id for leak in found.classes] == ["a"]


def test_demonyms_are_found() -> None:
    space = load_built_in("imagenet-21k")
    names = {"Jordanian": "n09718811", "Icelander": "n09714120", "street": "n04334599"}
    found = demonyms(list(names.values()), space)
    assert found == {names["Jordanian"], names["Icelander"]}
    assert demonyms(["a", "b"], SPACE) == set()


@pytest.mark.shared
def test_the_removed_demonyms_of_the_release_are_found(shared_data: object) -> None:
    from heldout.data.published.clip_geoyfcc_exclusions import EXCLUDED_45

    found = demonyms(list(EXCLUDED_45), load_built_in("imagenet-21k"))
    by_reason = {name for name, reason in EXCLUDED_45.items() if "people of" in reason}
    assert found == by_reason


def test_one_domain_has_no_bits() -> None:
    found = report([("a", "x"), ("b", "x")])
    assert f"{found.information:.3f} of {found.domain_entropy:.3f}" == "0.000 of 0.000"
