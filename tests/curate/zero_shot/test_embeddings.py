from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from heldout.core.errors import BadFile, MismatchError, NotFound, UserError
from heldout.models.embeddings import Embeddings, read_embeddings, write_embeddings


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_what_was_written_is_read_as_a_memory_map(tmp_path: Path, dtype: str) -> None:
    vectors = np.random.default_rng(0).standard_normal((5, 3)).astype(dtype)
    vectors[2] = np.nan
    ids = ["a", "b c", "d/é.jpg", "e", "f"]
    write_embeddings(tmp_path / "v", Embeddings(ids, vectors, {"encoder": {"name": "x"}}))
    found = read_embeddings(tmp_path / "v")
    assert (list(found.ids), found.vectors.dtype) == (ids, dtype)
    np.testing.assert_array_equal(found.vectors, vectors)
    assert isinstance(found.vectors, np.memmap)
    assert found.facts["encoder"] == {"name": "x"}


def test_no_vectors_are_written_and_read(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "v", Embeddings([], np.zeros((0, 4), np.float32)))
    assert read_embeddings(tmp_path / "v").vectors.shape == (0, 4)


def test_files_of_others_are_read(tmp_path: Path) -> None:
    vectors = np.eye(3, dtype=np.float32)
    np.save(tmp_path / "a.npy", vectors)
    (tmp_path / "a.ids.txt").write_text("x\ny\nz")
    np.savez(tmp_path / "b.npz", vectors=vectors, ids=np.array(["x", "y", "z"]))
    for name in ("a.npy", "b.npz"):
        found = read_embeddings(tmp_path / name)
        assert list(found.ids) == ["x", "y", "z"]
        np.testing.assert_array_equal(found.vectors, vectors)
        assert len(found.facts["sha256"]) == 64


def test_what_is_broken_is_one_line_with_the_fix(tmp_path: Path) -> None:
    def refused(kind: type[UserError], words: str, path: Path) -> None:
        with pytest.raises(kind, match=words):
            read_embeddings(path)

    refused(NotFound, "give a folder, a .npy or a .npz file", tmp_path / "none.npy")
    refused(NotFound, "embedding.json", tmp_path)
    np.save(tmp_path / "a.npy", np.eye(2))
    refused(NotFound, "to a.ids.txt", tmp_path / "a.npy")
    ids = tmp_path / "a.ids.txt"
    ids.write_text("x\n")
    refused(MismatchError, "2 rows and 1 ids", tmp_path / "a.npy")
    ids.write_text("x\nx\n")
    refused(BadFile, "an id twice", tmp_path / "a.npy")
    ids.write_bytes(b"x\n\xff\n")
    refused(BadFile, "UTF-8", tmp_path / "a.npy")
    ids.write_text("x\ny\n")
    np.save(tmp_path / "a.npy", np.eye(2, dtype=np.int64))
    refused(BadFile, "give floats", tmp_path / "a.npy")
    np.save(tmp_path / "a.npy", np.array([{"a": 1}, 2], object), allow_pickle=True)
    refused(BadFile, "it holds Python objects", tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", vectors=np.eye(2))
    refused(BadFile, "has no array 'ids'", tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"PK")
    refused(BadFile, "cannot be read", tmp_path / "c.npz")


def test_a_folder_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    write_embeddings(tmp_path / "v", Embeddings(["a", "b"], np.eye(2, dtype=np.float32)))
    head = tmp_path / "v" / "embedding.json"
    facts = {**json.loads(head.read_text()), "rows": 3}
    head.write_text(json.dumps(facts))
    with pytest.raises(BadFile, match="is not as it was written"):
        read_embeddings(tmp_path / "v")
    del facts["check"]
    head.write_text(json.dumps(facts))
    with pytest.raises(BadFile, match="says 3 rows, there are 2"):
        read_embeddings(tmp_path / "v")
