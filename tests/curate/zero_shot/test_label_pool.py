"""Tests of :mod:`heldout.curate.zero_shot.label_pool`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from heldout.core.engine import Shard
from heldout.core.engine.results import remove_job
from heldout.core.errors import ExistsError, NotApplicable
from heldout.core.workspace import Workspace
from heldout.curate.pool_images import folder_pool
from heldout.curate.zero_shot.assign import parse_similarities
from heldout.curate.zero_shot.class_texts import ClassPrompts, class_embeddings
from heldout.curate.zero_shot.label_pool import (
    Annotation,
    AnnotationCounts,
    annotated_pool,
    write_parquet,
)
from heldout.data.images.preprocessing import pixels_of
from heldout.data.labels import LabelSpace
from heldout.data.testset.testset import load, save
from heldout.data.testset.verify import verify
from heldout.models.embeddings import Embeddings, embed
from heldout.testing.encoder import FakeEncoder

# embedding


class Counting(FakeEncoder):
    """Counts the images that it is shown, and may stop working after some."""

    def __init__(self, *, stop_after: int = 10**9) -> None:
        super().__init__()
        self.seen = 0
        self._stop = stop_after

    def encode_images(self, pixels: np.ndarray) -> np.ndarray:
        self.seen += len(pixels)
        if self.seen > self._stop:
            raise KeyboardInterrupt
        return super().encode_images(pixels)


def test_vectors_are_the_encoders_own(colour_folder: Path, tmp_path: Path) -> None:
    pool, encoder = folder_pool(colour_folder), FakeEncoder()
    found = embed(pool, encoder, workspace=Workspace(tmp_path), workers=2)
    assert list(found.ids) == sorted(path.name for path in colour_folder.iterdir())
    for name, vector in zip(found.ids, found.vectors, strict=True):
        data = (colour_folder / name).read_bytes()
        pixels = pixels_of(data, encoder.preprocessing.geometry)
        assert isinstance(pixels, np.ndarray)
        np.testing.assert_array_equal(vector, encoder.encode_images(pixels[None])[0])


def test_images_are_looked_at_once_and_again_when_they_change(
    colour_folder: Path, tmp_path: Path
) -> None:
    workspace, encoder = Workspace(tmp_path / "w"), Counting()
    embed(folder_pool(colour_folder), encoder, workspace=workspace)
    embed(folder_pool(colour_folder), encoder, workspace=workspace)
    assert encoder.seen == 20
    (colour_folder / "green-0.png").write_bytes((colour_folder / "blue-0.png").read_bytes() + b" ")
    embed(folder_pool(colour_folder), encoder, workspace=workspace)
    assert encoder.seen == 21
    (colour_folder / "red-0.png").write_bytes((colour_folder / "blue-0.png").read_bytes())
    found = embed(folder_pool(colour_folder), encoder, workspace=workspace)
    assert encoder.seen == 21, "these bytes were encoded before, under another name"
    np.testing.assert_array_equal(
        found.vectors[list(found.ids).index("red-0.png")],
        found.vectors[list(found.ids).index("blue-0.png")],
    )


def test_a_stopped_run_goes_on_and_gives_the_same_bytes(
    colour_folder: Path, tmp_path: Path
) -> None:
    pool = folder_pool(colour_folder)
    broken, whole = Workspace(tmp_path / "a"), Workspace(tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        embed(pool, Counting(stop_after=12), workspace=broken, workers=1)
    again = Counting()
    embed(pool, again, workspace=broken, workers=1)
    assert 0 < again.seen < 20
    embed(pool, Counting(), workspace=whole, workers=2)
    for name in ("vectors.npy", "ids.txt", "embedding.json"):
        files = [next(place.root.rglob(f"embeddings/*/*/{name}")) for place in (broken, whole)]
        assert files[0].read_bytes() == files[1].read_bytes()


def test_who_embeds_the_same_at_once_does_not_remove_what_is_still_read(
    colour_folder: Path, tmp_path: Path
) -> None:
    """The other ends while this one reads its results into the file of vectors."""
    workspace = Workspace(tmp_path)

    class Beside(FakeEncoder):
        @property
        def dimension(self) -> int:
            for job in workspace.runs.glob("embed-*"):
                remove_job(job)
            return self._dimension

        @dimension.setter
        def dimension(self, value: int) -> None:
            self._dimension = value

    pool = folder_pool(colour_folder)
    found = embed(pool, Beside(), workspace=workspace)
    plain = embed(pool, FakeEncoder(), workspace=Workspace(tmp_path / "plain"))
    np.testing.assert_array_equal(found.vectors, plain.vectors)
    assert not list(workspace.runs.glob("embed-*"))


def test_shards_make_the_whole(colour_folder: Path, tmp_path: Path) -> None:
    pool, workspace = folder_pool(colour_folder), Workspace(tmp_path / "w")
    plain = embed(pool, FakeEncoder(), workspace=Workspace(tmp_path / "plain"))
    done: Sequence[str] = []
    for share in (1, 2, 3):
        try:
            done = list(embed(pool, FakeEncoder(), workspace=workspace, shard=Shard(share, 3)).ids)
        except NotApplicable as error:
            assert "run the other shards" in error.line
    found = embed(pool, FakeEncoder(), workspace=workspace)
    assert done == list(found.ids)
    np.testing.assert_array_equal(found.vectors, plain.vectors)


def test_an_image_that_cannot_be_read_has_no_vector(colour_folder: Path, tmp_path: Path) -> None:
    (colour_folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    found = embed(folder_pool(colour_folder), FakeEncoder(), workspace=Workspace(tmp_path))
    row = list(found.ids).index("bad.png")
    assert np.isnan(found.vectors[row]).all()
    assert list(found.facts["failures"]) == ["bad.png"]
    assert not np.isnan(np.delete(found.vectors, row, axis=0)).any()


def test_an_image_that_was_missing_is_looked_for_again(colour_folder: Path, tmp_path: Path) -> None:
    """What could not be had once is no property of the image: the vectors are those of a whole run."""
    pool, encoder = folder_pool(colour_folder), Counting()
    whole = embed(pool, FakeEncoder(), workspace=Workspace(tmp_path / "whole"))
    workspace = Workspace(tmp_path / "w")
    away = (colour_folder / "red-0.png").rename(tmp_path / "away.png")
    found = embed(pool, encoder, workspace=workspace)
    assert list(found.facts["failures"]) == ["red-0.png"]
    seen = encoder.seen
    assert list(embed(pool, encoder, workspace=workspace).facts["failures"]) == ["red-0.png"]
    assert encoder.seen == seen, "still away: nothing runs"
    away.rename(colour_folder / "red-0.png")
    again = embed(pool, encoder, workspace=workspace)
    assert again.facts == whole.facts and encoder.seen > seen
    np.testing.assert_array_equal(again.vectors, whole.vectors)
    seen = encoder.seen
    embed(pool, encoder, workspace=workspace)
    assert encoder.seen == seen
    assert not list(workspace.runs.glob("embed-*"))


def test_a_wrong_folder_of_images_is_forgotten(colour_folder: Path, tmp_path: Path) -> None:
    pool, workspace = folder_pool(colour_folder), Workspace(tmp_path / "w")
    (tmp_path / "wrong").mkdir()
    with pytest.raises(NotApplicable, match="none of the 20 images"):
        embed(pool, FakeEncoder(), workspace=workspace, images=tmp_path / "wrong")
    found = embed(pool, FakeEncoder(), workspace=workspace)
    assert not found.facts["failures"] and np.isfinite(found.vectors).all()


def test_nothing_readable_is_refused(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "bad.png").write_bytes(b"no image")
    with pytest.raises(NotApplicable, match="none of the 1 images"):
        embed(folder_pool(tmp_path / "images"), FakeEncoder(), workspace=Workspace(tmp_path))


# zero shot


def annotation(
    found: Embeddings, colours: LabelSpace, workspace: Workspace, *, k: int = 2
) -> Annotation:
    prompts = ClassPrompts(colours)
    return Annotation(
        embeddings=found,
        space=colours,
        classes=class_embeddings(FakeEncoder(), prompts, workspace=workspace).vectors,
        class_facts=prompts.facts(),
        similarities=parse_similarities("cosine,softmax@1,margin"),
        k=k,
    )


def test_a_folder_becomes_a_pool_with_labels_similarities_and_ties(
    colour_folder: Path, colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path / "w")
    pool = folder_pool(colour_folder)
    found = embed(pool, FakeEncoder(), workspace=workspace)
    tally = AnnotationCounts()
    made = annotated_pool(pool, annotation(found, colours, workspace), tally, name="labelled")
    for row in made.images.to_pylist():
        colour = row["image_id"].split("-")[0]
        assert row["class_id"] == ("a-red" if colour == "red" else f"c-{colour}")
        assert row["tied_with"] == (["c-red"] if colour == "red" else None)
        assert (row["margin"] == 0) == (colour == "red")
        assert row["top_classes"][0] == row["class_id"]
        assert row["top_cosines"][0] == row["similarity_cosine"]
        assert 1 / 6 < row["similarity_softmax_1"] < 1
    assert (tally.images, tally.without_vector, tally.tied, len(tally.used)) == (20, 0, 4, 5)
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
    order = np.random.default_rng(0).permutation(len(found))
    turned = Embeddings([found.ids[row] for row in order], found.vectors[order], found.facts)
    both = [
        annotated_pool(pool, annotation(each, colours, workspace), AnnotationCounts(), name="x")
        for each in (found, turned)
    ]
    assert both[0].content_hash == both[1].content_hash
    fewer = Embeddings(found.ids[1:], found.vectors[1:])
    with pytest.raises(NotApplicable, match="1 of 20 images have no vector"):
        annotated_pool(pool, annotation(fewer, colours, workspace), AnnotationCounts(), name="x")


def test_precomputed_vectors_alone_become_a_pool_or_a_table(
    colours: LabelSpace, tmp_path: Path
) -> None:
    workspace = Workspace(tmp_path)
    classes = class_embeddings(FakeEncoder(), ClassPrompts(colours), workspace=workspace).vectors
    images = np.vstack([classes[[1, 2, 0]], np.full((1, 27), np.nan)]).astype(np.float32)
    found = Embeddings(["x", "y", "z", "bad"], images, {"file": "v.npy"})
    how, tally = annotation(found, colours, workspace), AnnotationCounts()
    made = annotated_pool(None, how, tally, name="v")
    assert made.images["class_id"].to_pylist() == [*(colours.ids[i] for i in (1, 2, 0)), None]
    assert made.images["similarity_cosine"].null_count == 1
    assert tally.without_vector == 1
    assert len(made.truths["zero-shot"]) == 3
    path = tmp_path / "deep" / "out.parquet"
    write_parquet(how, AnnotationCounts(), path)
    table = pq.read_table(path)
    for column in ("image_id", "class_id", "similarity_softmax_1", "tied_with", "top_classes"):
        assert table[column].to_pylist() == made.images[column].to_pylist()
    stated = json.loads(table.schema.metadata[b"heldout.annotation"])
    assert stated == made.card.facts["annotation"]
    other = annotation(found, colours, workspace, k=1)
    with pytest.raises(ExistsError, match=r"out\.parquet exists"):
        write_parquet(other, AnnotationCounts(), path)
    assert pq.read_table(path).equals(table)
    write_parquet(other, AnnotationCounts(), path, replace=True)
    assert "top_classes" not in pq.read_table(path).column_names


@pytest.mark.parametrize("blocks", [2, 128])
def test_a_table_of_many_blocks_equals_the_pool(
    colours: LabelSpace, tmp_path: Path, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("heldout.curate.zero_shot.label_pool._ROW_GROUP", blocks)
    vectors = np.random.default_rng(0).standard_normal((1_300, 27)).astype(np.float32)
    found = Embeddings([f"i{n}" for n in range(1_300)], vectors)
    how, tally = annotation(found, colours, Workspace(tmp_path)), AnnotationCounts()
    made = annotated_pool(None, how, AnnotationCounts(), name="v")
    write_parquet(how, tally, tmp_path / "out.parquet")
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
    how = annotation(found, colours, workspace)
    made = annotated_pool(pool, how, AnnotationCounts(), name="x")
    with pytest.raises(ExistsError, match="class_id already"):
        annotated_pool(made, how, AnnotationCounts(), name="y")
