from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldout.core.errors import BadFile, NotFound
from heldout.data.published.json_stream import JsonFile, JsonStream, documents, open_json

_NUMBERS = st.integers() | st.floats(allow_nan=False)
_LEAVES = st.none() | st.booleans() | _NUMBERS | st.text()
VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12
)
LAYOUTS = st.sampled_from([(None, (", ", ": ")), (None, (",", ":")), (2, (",", ": "))])


def stream_of(data: bytes, *, chunk: int = 7, longest: int = 1 << 20) -> JsonStream:
    return JsonStream(io.BytesIO(data), JsonFile(Path("x.json")), chunk=chunk, longest=longest)


def walk(stream: JsonStream) -> list[tuple[str, Any]]:
    found = [(key, stream.value()) for key in stream.members()]
    stream.finish()
    return found


def encoded(value: Any, layout: Any, ascii_only: bool) -> bytes:
    indent, separators = layout
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=ascii_only)
    return text.encode("utf-8", "surrogatepass" if ascii_only else "strict")


@given(st.dictionaries(st.text(), VALUES), LAYOUTS, st.booleans(), st.integers(1, 40))
def test_members_are_those_of_the_whole(
    value: dict[str, Any], layout: Any, ascii_only: bool, chunk: int
) -> None:
    data = encoded(value, layout, ascii_only)
    assert walk(stream_of(data, chunk=chunk)) == list(json.loads(data).items())


@given(st.lists(VALUES), LAYOUTS, st.integers(1, 40))
def test_elements_are_those_of_the_whole(value: list[Any], layout: Any, chunk: int) -> None:
    stream = stream_of(encoded(value, layout, True), chunk=chunk)
    found = [stream.value() for _ in stream.elements()]
    stream.finish()
    assert found == value


@given(
    st.dictionaries(st.text(min_size=1), VALUES, min_size=1),
    st.booleans(),
    st.integers(1, 40),
    st.data(),
)
def test_cut_anywhere_nothing_false_is_read(
    value: dict[str, Any], ascii_only: bool, chunk: int, data: Any
) -> None:
    whole = encoded(value, (None, (", ", ": ")), ascii_only)
    cut = data.draw(st.integers(0, len(whole) - 1))
    found: list[tuple[str, Any]] = []
    with pytest.raises(BadFile, match="not valid JSON near character"):
        stream = stream_of(whole[:cut], chunk=chunk)
        for key in stream.members():
            found.append((key, stream.value()))
    assert found == list(value.items())[: len(found)]


@given(st.binary(max_size=60), st.integers(1, 20))
def test_any_bytes_are_read_as_json_reads_them_or_refused(data: bytes, chunk: int) -> None:
    try:
        expected = json.loads(data.decode("utf-8").removeprefix("\ufeff"))
    except (ValueError, RecursionError):
        expected = None
    try:
        found: Any = dict(walk(stream_of(data, chunk=chunk)))
    except BadFile:
        found = None
    assert found == (expected if isinstance(expected, dict) else None)


@pytest.mark.parametrize("chunk", [1, 2, 50])
def test_a_mark_of_byte_order_is_stepped_over(chunk: int) -> None:
    assert walk(stream_of(b"\xef\xbb\xbf" + b'{"a": 1}', chunk=chunk)) == [("a", 1)]
    with pytest.raises(BadFile, match="not valid JSON near character 0"):
        walk(stream_of(b"\xef\xbb\xbf", chunk=chunk))


def test_repeated_keys_all_come() -> None:
    assert walk(stream_of(b'{"a": 1, "a": 2}')) == [("a", 1), ("a", 2)]


def test_lists_inside_are_walked_too() -> None:
    stream = stream_of(b'{"images": [1, {"a": []}], "other": {"b": 2}}')
    found: list[Any] = []
    for key in stream.members():
        if stream.starts() == "[":
            found += [(key, stream.value()) for _ in stream.elements()]
        else:
            found.append((key, stream.value()))
    stream.finish()
    assert found == [("images", 1), ("images", {"a": []}), ("other", {"b": 2})]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "near character 0"),
        ("  \n ", "near character 4"),
        ("[1]", "an object is expected"),
        ("PK nonsense", "an object is expected"),
        ('{"a": 1} {"b": 2}', "near character 9"),
        ('{"a": 1,, "b": 2}', "near character 8"),
        ('{"a" 1}', "near character 5"),
        ('{"a": 1 "b": 2}', "near character 8"),
        ('{"a": {"b": nope, "c": 1}, "d": 1}', "near character 12"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "near character 6"),
        ('{"a": ' + "1" * 5000 + "}", "near character 6"),
        ('{"a": "tab\tinside"}', "near character 10"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str) -> None:
    with pytest.raises(BadFile) as caught:
        walk(stream_of(text.encode(), chunk=1 << 12))
    assert said in caught.value.line and "x.json" in caught.value.line
    assert "\n" not in caught.value.line and len(caught.value.line) < 250


def test_the_place_is_named() -> None:
    with pytest.raises(BadFile, match="near character 19:"):
        walk(stream_of(b'{"first": 1, "ab": ?, "c": "' + b"x" * 90 + b'"}'))


def test_a_value_without_end_is_not_gathered_for_ever() -> None:
    with pytest.raises(BadFile, match="more than 100 characters"):
        walk(stream_of(b'{"a": "' + b"x" * 10_000, chunk=10, longest=100))


def test_little_is_held_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    path.write_text("{" + ", ".join(f'"{i}": "{"x" * 200}"' for i in range(20_000)) + "}")
    longest = 0
    with open_json(documents(path)[0], chunk=1 << 14) as stream:
        for _ in stream.members():
            stream.value()
            longest = max(longest, len(stream._text))
    assert longest < 3 << 14 < path.stat().st_size / 50


def packed(text: str, kind: str, tmp_path: Path) -> Path:
    path = tmp_path / f"x.json.{kind}"
    if kind == "gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("b/train.json", text)
            archive.writestr("a/val.json", '{"z": 0}')
            archive.writestr("__MACOSX/b/._train.json", b"\x00\x05")
            archive.writestr("readme.txt", "no")
    return path


def walk_file(path: Path) -> list[tuple[str, Any]]:
    found = []
    for document in documents(path):
        with open_json(document, chunk=64) as stream:
            found += walk(stream)
    return found


TEXT = json.dumps({str(i): {"n": [i] * 20} for i in range(300)})


def test_packed_files_are_read_in_place(tmp_path: Path) -> None:
    expected = list(json.loads(TEXT).items())
    assert walk_file(packed(TEXT, "gz", tmp_path)) == expected
    assert walk_file(packed(TEXT, "zip", tmp_path)) == [("z", 0), *expected]


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_torn_gzip_file_is_cut_off(tmp_path: Path, keep: float) -> None:
    path = packed(TEXT, "gz", tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(BadFile, match="cannot be unpacked"):
        walk_file(path)


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    path = packed(TEXT, "zip", tmp_path)
    data = bytearray(path.read_bytes())
    at = data.index(b"train.json") + 60
    data[at : at + 8] = bytes(8)
    path.write_bytes(bytes(data))
    with pytest.raises(BadFile, match="cannot be unpacked"):
        walk_file(path)
    path = packed(TEXT, "gz", tmp_path)
    path.write_bytes(path.read_bytes()[:-6] + b"\0\0\0\0\0\0")  # a checksum that does not fit
    with pytest.raises(BadFile, match="cannot be unpacked"):
        walk_file(path)


def test_files_that_are_not_there(tmp_path: Path, written: Callable[..., Path]) -> None:
    with pytest.raises(NotFound):
        documents(tmp_path / "no.json")
    with pytest.raises(BadFile, match="is a folder"):
        documents(tmp_path)
    with pytest.raises(BadFile, match="is empty"):
        documents(written("", "empty.json"))
    with zipfile.ZipFile(tmp_path / "none.zip", "w") as archive:
        archive.writestr("a.txt", "x")
    with pytest.raises(BadFile, match=r"no \.json file"):
        documents(tmp_path / "none.zip")


def test_progress_is_told_in_bytes(written: Callable[..., Path]) -> None:
    path = written({"a": "é" * 1000})
    told: list[tuple[str, int, int | None]] = []
    with open_json(
        documents(path)[0], chunk=100, progress=lambda *seen: told.append(seen)
    ) as stream:
        walk(stream)
    assert told[-1] == (str(path), path.stat().st_size, path.stat().st_size)
