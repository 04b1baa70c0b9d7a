from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile
from heldout.core.workspace import Workspace
from heldout.curate.zero_shot.class_texts import (
    ClassPrompts,
    class_embeddings,
    text_vectors,
)
from heldout.data.labels import LabelSpace
from heldout.models.adapters.prompts import prompt_templates
from heldout.testing.encoder import FakeEncoder


@pytest.mark.shared
def test_texts_of_all_21843_classes_equal_the_published_list(shared_data: Path) -> None:
    prompts = ClassPrompts(LabelSpace.load("imagenet-21k"))
    folder = shared_data / "geoyfcc"
    lines = (folder / "imagenet21k_wordnet_lemmas.txt").read_text(encoding="utf-8").splitlines()
    underscored = [
        ", ".join(item.names).replace(" ", "_").replace(",_", ", ") for item in prompts.space
    ]
    assert len(lines) == 21_843
    assert sum(a == b for a, b in zip(underscored, lines, strict=True)) == 21_843
    spaced = [line.replace("_", " ") for line in lines]
    assert sum(a == b for a, b in zip(prompts.texts, spaced, strict=True)) == 21_843
    ids = folder / "imagenet21k_wordnet_ids.txt"
    assert (
        prompts.facts()["class_list_sha256"]
        == hashlib.sha256(ids.read_bytes().rstrip(b"\n") + b"\n").hexdigest()
    )


def test_525_texts_are_shared_by_1128_classes() -> None:
    prompts = ClassPrompts(LabelSpace.load("imagenet-21k"))
    shared = prompts.shared
    assert (len(shared), sum(map(len, shared))) == (525, 1_128)
    facts = prompts.facts()
    assert (facts["shared_texts"], facts["classes_with_shared_texts"]) == (525, 1_128)
    queens = next(group for group in shared if "n10499857" in group)
    assert len(queens) == 5
    assert max(map(len, shared)) == 5


def test_distinct_names_share_nothing() -> None:
    assert ClassPrompts(LabelSpace.load("imagenet-1k"), names="first").shared == ()


def test_a_class_is_the_mean_of_its_unit_prompts_made_unit_again(
    colours: LabelSpace, tmp_path: Path
) -> None:
    encoder = FakeEncoder()
    file = tmp_path / "templates.txt"
    file.write_text("a photo of a {}.\nthe {}\n{} at night\n")
    prompts = ClassPrompts(colours, templates=str(file))
    found = class_embeddings(encoder, prompts, workspace=Workspace(tmp_path))
    for item, vector in zip(colours, found.vectors, strict=True):
        name = item.names[0]
        texts = [f"a photo of a {name}.", f"the {name}", f"{name} at night"]
        mean = encoder.encode_texts(texts).astype(np.float64).mean(axis=0)
        np.testing.assert_array_equal(vector, (mean / np.sqrt((mean**2).sum())).astype(np.float32))


def test_one_template_is_the_prompts_own_vector(colours: LabelSpace, tmp_path: Path) -> None:
    encoder = FakeEncoder()
    prompts = ClassPrompts(colours, templates="single")
    found = class_embeddings(encoder, prompts, workspace=Workspace(tmp_path))
    texts = [f"a photo of a {item.names[0]}." for item in colours]
    np.testing.assert_array_equal(found.vectors, encoder.encode_texts(texts))


def test_the_ensemble_is_80_sentences() -> None:
    templates = prompt_templates("ensemble")
    assert len(templates) == len(set(templates)) == 80
    assert all(template.count("{}") == 1 for template in templates)
    assert templates[0] == "a photo of a {}."
    assert text_vectors(FakeEncoder(), ["red", "blue"], templates).shape == (2, 27)


def test_classes_of_one_text_have_one_vector_and_each_text_is_encoded_once(
    colours: LabelSpace, tmp_path: Path
) -> None:
    class Counting(FakeEncoder):
        seen = 0

        def encode_texts(self, texts: object) -> np.ndarray:
            assert isinstance(texts, list)
            self.seen += len(texts)
            return super().encode_texts(texts)

    encoder = Counting()
    prompts = ClassPrompts(colours)
    for _ in range(2):
        found = class_embeddings(encoder, prompts, workspace=Workspace(tmp_path))
    assert encoder.seen == 5
    place = {item.id: row for row, item in enumerate(colours)}
    np.testing.assert_array_equal(found.vectors[place["a-red"]], found.vectors[place["c-red"]])
    assert list(found.ids) == list(colours.ids)


def test_a_bad_file_of_templates_is_refused(colours: LabelSpace, tmp_path: Path) -> None:
    file = tmp_path / "templates.txt"
    file.write_text("a photo\n")
    with pytest.raises(BadFile, match="where the name goes"):
        _ = ClassPrompts(colours, templates=str(file)).patterns
