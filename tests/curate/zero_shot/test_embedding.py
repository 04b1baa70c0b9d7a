from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from heldout.core.engine import Shard
from heldout.core.errors import NotApplicable, UserError
from heldout.core.workspace import Workspace
from heldout.curate.zero_shot.label_pool import folder_pool
from heldout.data.images.preprocessing import pixels_of
from heldout.models.embeddings import embed, embeddings_folder
from heldout.testing.encoder import FakeEncoder


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
    (colour_folder / "red-0.png").write_bytes((colour_folder / "blue-0.png").read_bytes())
    found = embed(folder_pool(colour_folder), encoder, workspace=workspace)
    assert encoder.seen > 20
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


def test_half_precision_is_kept_apart(colour_folder: Path, tmp_path: Path) -> None:
    pool, workspace = folder_pool(colour_folder), Workspace(tmp_path)
    full = embed(pool, FakeEncoder(), workspace=workspace)
    half = embed(pool, FakeEncoder(), workspace=workspace, dtype="float16")
    assert half.vectors.dtype == np.float16
    np.testing.assert_array_equal(half.vectors, full.vectors.astype(np.float16))
    assert len(list(embeddings_folder(workspace, FakeEncoder()).iterdir())) == 2
    with pytest.raises(UserError, match="float32 or float16"):
        embed(pool, FakeEncoder(), workspace=workspace, dtype="int8")
