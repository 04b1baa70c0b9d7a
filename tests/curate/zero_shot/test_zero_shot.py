from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from heldout.core.errors import ExistsError, MismatchError, NotApplicable
from heldout.core.workspace import Workspace
from heldout.curate.zero_shot.assign import parse_similarities
from heldout.curate.zero_shot.class_texts import class_embeddings, class_prompts
from heldout.curate.zero_shot.label_pool import (
    AssignOptions,
    ClassSide,
    PoolImages,
    annotated_pool,
    folder_pool,
    pool_agreement,
    write_parquet,
)
from heldout.data.labels import LabelSpace
from heldout.data.testset.testset import load, save
from heldout.data.testset.verify import verify
from heldout.models.embeddings import Embeddings, embed
from heldout.testing.encoder import FakeEncoder

OPTIONS = AssignOptions(parse_similarities("cosine,softmax@1,margin"), k=2)


def side(colours: LabelSpace, workspace: Workspace) -> ClassSide:
    prompts = class_prompts(colours)
    found = class_embeddings(FakeEncoder(), prompts, workspace=workspace)
    return ClassSide(colours, found.vectors, prompts.facts())


def test_a_folder_becomes_a_pool_with_labels_similarities_and_ties(
    colour_folder: Path, colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "w")
    pool = folder_pool(colour_folder)
    found = embed(pool, FakeEncoder(), workspace=workspace)
    made, tally = annotated_pool(
        PoolImages("colours", pool=pool), found, side(colours, workspace), OPTIONS, name="labelled"
    )
    for row in made.images.to_pylist():
        colour = row["image_id"].split("-")[0]
        assert row["class_id"] == ("a-red" if colour == "red" else f"c-{colour}")
        assert row["tied_with"] == (["c-red"] if colour == "red" else None)
        assert (row["margin"] == 0) == (colour == "red")
        assert row["top_classes"][0] == row["class_id"]
        assert row["top_cosines"][0] == row["similarity_cosine"]
        assert 1 / 6 < row["similarity_softmax_1"] < 1
    assert (tally.images, tally.without_vector, tally.tied, tally.classes_used) == (20, 0, 4, 5)
    assert made.truths["zero-shot"]["class_id"].to_pylist() == made.images["class_id"].to_pylist()
    stated = made.card.facts["annotation"]
    assert stated["classes"]["shared_texts"] == 1
    assert stated["images"]["encoder"]["identity"]["adapter"] == "fake"
    assert stated["similarities"]["similarity_softmax_1"] == {"kind": "softmax", "temperature": 1.0}
    saved = save(made, tmp_path / "out")
    assert verify(tmp_path / "out").ok and saved.content_hash == made.content_hash
    assert load(tmp_path / "out").card.columns["margin"].kind == "ordered"


def test_vectors_in_another_order_give_the_same_pool(
    colour_folder: Path, colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "w")
    pool = folder_pool(colour_folder)
    found = embed(pool, FakeEncoder(), workspace=workspace)
    classes = side(colours, workspace)
    order = np.random.default_rng(0).permutation(len(found))
    turned = Embeddings([found.ids[row] for row in order], found.vectors[order], found.facts)
    both = [
        annotated_pool(PoolImages("c", pool=pool), each, classes, OPTIONS, name="x")[0]
        for each in (found, turned)
    ]
    assert both[0].content_hash == both[1].content_hash
    fewer = Embeddings(found.ids[1:], found.vectors[1:])
    with pytest.raises(NotApplicable, match="1 of 20 images have no vector"):
        annotated_pool(PoolImages("c", pool=pool), fewer, classes, OPTIONS, name="x")


def test_precomputed_vectors_alone_become_a_pool_or_a_table(
    colours: LabelSpace, tmp_path: Path
) -> None:
    classes = side(colours, Workspace(tmp_path))
    images = np.vstack([classes.vectors[[1, 2, 0]], np.full((1, 27), np.nan)]).astype(np.float32)
    found = Embeddings(["x", "y", "z", "bad"], images, {"file": "v.npy"})
    made, tally = annotated_pool(
        PoolImages("v", embeddings=found), found, classes, OPTIONS, name="v"
    )
    assert made.images["class_id"].to_pylist() == [*(colours.ids[i] for i in (1, 2, 0)), None]
    assert made.images["similarity_cosine"].null_count == 1
    assert tally.without_vector == 1
    assert len(made.truths["zero-shot"]) == 3
    write_parquet(found, classes, OPTIONS, tmp_path / "deep" / "out.parquet")
    table = pq.read_table(tmp_path / "deep" / "out.parquet")
    for column in ("image_id", "class_id", "similarity_softmax_1", "tied_with", "top_classes"):
        assert table[column].to_pylist() == made.images[column].to_pylist()
    stated = json.loads(table.schema.metadata[b"heldout.annotation"])
    assert stated == made.card.facts["annotation"]
    path = tmp_path / "deep" / "out.parquet"
    write_parquet(found, classes, OPTIONS, path)  # the same again
    other = replace(OPTIONS, k=1)
    with pytest.raises(ExistsError, match=r"out\.parquet exists and holds something else"):
        write_parquet(found, classes, other, path)
    assert pq.read_table(path).equals(table)
    write_parquet(found, classes, other, path, replace=True)
    assert "top_classes" not in pq.read_table(path).column_names


def test_a_table_of_many_blocks_equals_the_pool(colours: LabelSpace, tmp_path: Path) -> None:
    classes = side(colours, Workspace(tmp_path))
    vectors = np.random.default_rng(0).standard_normal((1_300, 27)).astype(np.float32)
    found = Embeddings([f"i{n}" for n in range(1_300)], vectors)
    made, _ = annotated_pool(PoolImages("v", embeddings=found), found, classes, OPTIONS, name="v")
    tally = write_parquet(found, classes, OPTIONS, tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert (len(table), tally.images) == (1_300, 1_300)
    for column in table.column_names:
        assert table[column].to_pylist() == made.images[column].to_pylist()


def test_what_a_pool_has_already_is_not_overwritten(
    colour_folder: Path, colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "w")
    pool = folder_pool(colour_folder)
    found = embed(pool, FakeEncoder(), workspace=workspace)
    classes = side(colours, workspace)
    made, _ = annotated_pool(PoolImages("c", pool=pool), found, classes, OPTIONS, name="x")
    with pytest.raises(ExistsError, match="class_id already"):
        annotated_pool(PoolImages("x", pool=made), found, classes, OPTIONS, name="y")


def test_class_vectors_must_be_one_a_class(colours: LabelSpace) -> None:
    with pytest.raises(MismatchError, match="one vector per class"):
        ClassSide(colours, np.eye(3, dtype=np.float32), {})


def test_agreement_with_a_truth_of_the_pool(
    colour_folder: Path, colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "w")
    pool = folder_pool(colour_folder)
    found = embed(pool, FakeEncoder(), workspace=workspace)
    made, _ = annotated_pool(
        PoolImages("c", pool=pool), found, side(colours, workspace), OPTIONS, name="x"
    )
    agreed = pool_agreement(made, colours)
    assert (agreed.same, agreed.images) == (20, 20)
