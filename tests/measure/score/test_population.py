"""Published tables of accuracies, joined and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.measure.score.fits import read_population


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_one_file_in_percent_or_fractions(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.csv", "model,val,new",
        "a,76.1,0.63", "b,80,0.7", "c,,0.5", "d,100,0.9", "e,0,0.5", "f,70,1", "g,60,0",
    )  # fmt: skip
    found = read_population([path], x="val", y="new")
    assert found.models == ("a", "b")
    assert found.x == pytest.approx([0.761, 0.8]) and found.y.tolist() == [0.63, 0.7]
    assert (found.x_name, found.y_name, found.dropped) == ("val", "new", 5)
    assert read_population([path], x="val", y="new", exclude=["a*"]).models == ("b",)


def test_one_file_may_hold_one_name_twice(tmp_path: Path) -> None:
    path = write(tmp_path / "p.csv", "model,val,new", "a,70,60", "a,71,61")
    assert read_population([path], x="val", y="new").x.tolist() == [0.7, 0.71]


def test_two_files_join_on_model_and_size(tmp_path: Path) -> None:
    first = write(
        tmp_path / "val.csv", "model,img_size,top1", "a,224,80", "a,288,81", "b,224,70", "z,224,50"
    )
    second = write(
        tmp_path / "new.csv", "img_size,model,top1", "288,a,61", "224,a,60", '224,b,"5,0"'
    )
    found = read_population([first, second], x="top1", y="top1")
    assert found.models == ("a 224", "a 288", "b 224")
    assert found.y.tolist() == [0.6, 0.61, 0.5]
    assert (found.x_name, found.y_name) == ("val:top1", "new:top1")
    assert found.dropped == 1


def test_bad_tables_name_the_file_and_the_line(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", "model,val,new", "a,70,60")
    with pytest.raises(NotFound, match="no file"):
        read_population([tmp_path / "none.csv"], x="val", y="new")
    with pytest.raises(BadFile, match="no column 'xyz' for accuracies: it has model, val, new"):
        read_population([good], x="xyz", y="new")
    with pytest.raises(UserError, match="3 population files"):
        read_population([good] * 3, x="val", y="new")
    for lines, text in (
        (("name,val,new", "a,1,2"), "has no column 'model'"),
        (("model,val,new",), "has no rows"),
        (("model,val,new", "a,x,60"), "line 2: 'x' in val is not an accuracy"),
        (("model,val,new", "a,50,60", "b,170,60"), "line 3: '170' in val is not an accuracy"),
        (("model,val,new", "a,50,-1"), "line 2: '-1' in new is not an accuracy"),
    ):
        path = write(tmp_path / "bad.csv", *lines)
        with pytest.raises(BadFile, match=text):
            read_population([path], x="val", y="new")
    (tmp_path / "bytes.csv").write_bytes(b"model,val\n\xff\xfe,1\n")
    with pytest.raises(BadFile, match="is not text in UTF-8"):
        read_population([tmp_path / "bytes.csv"], x="val", y="val")


def test_two_files_that_disagree_or_share_nothing(tmp_path: Path) -> None:
    first = write(tmp_path / "one.csv", "model,top1", "a,80")
    twice = write(tmp_path / "two.csv", "model,top1", "a,60", "a,61")
    with pytest.raises(BadFile, match="line 3: a is there twice with other values"):
        read_population([first, twice], x="top1", y="top1")
    other = write(tmp_path / "three.csv", "model,top1", "b,60")
    with pytest.raises(UserError, match="share no model"):
        read_population([first, other], x="top1", y="top1")
