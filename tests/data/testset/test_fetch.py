"""Fetching, against a loopback server that breaks off, lies, forgets and changes its mind."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from heldout.core.errors import BadFile, NotFound, UserError
from heldout.core.records import to_dict
from heldout.core.web import Patience
from heldout.data.labels.wordnet import BUILT_IN
from heldout.data.published.imagenetv2 import ALIASES
from heldout.data.testset import fetch as registry
from heldout.data.testset.fetch import (
    Fetched,
    PublishedFile,
    PublishedSet,
    fetch,
    holding,
)
from tests.core.lying_server import DATA as FILE
from tests.core.lying_server import (
    ENOUGH,
    MOODS,
    SIZE,
    Asked,
    Internet,
    LyingServer,
    Mood,
    has_the_wrong_bytes,
    internet,
    is_longer_than_it_says,
    is_too_long,
    joins_the_wrong_bytes,
    liar,
)

__all__ = ["internet", "liar"]
DATA = b"\x93NUMPY" + bytes(range(256)) * 3000
OTHER = DATA[::-1]
SHA = hashlib.sha256(DATA).hexdigest()


@dataclass
class Answer:
    """One scripted answer. Plain: the data, honouring Range, with a strong tag."""

    data: bytes = DATA
    status: int = 200
    stop_at: int | None = None  # close the connection after so many bytes of the body
    length: int | None = -1  # what Content-Length says; -1 the truth, None nothing
    ranges: bool = True
    tag: str | None = '"one"'
    modified: str | None = None
    kind: str = "application/octet-stream"
    headers: dict[str, str] = field(default_factory=dict)
    shift: int = 0  # answer a range that starts elsewhere
    ignores_validator: bool = False


class Server:
    """A web server on the loopback address that answers each path by its script."""

    def __init__(self) -> None:
        self.scripts: dict[str, list[Answer]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}))
                script = outer.scripts.get(self.path, [Answer(b"nothing here", 404)])
                outer.answer(self, script.pop(0) if len(script) > 1 else script[0])

            def log_message(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: Any) -> None:
                pass  # a client that leaves early is part of the play

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.http.server_address[1]}"

    def ranges(self) -> list[str | None]:
        return [headers.get("range") for _, headers in self.requests]

    def answer(self, to: BaseHTTPRequestHandler, a: Answer) -> None:
        body, status, extra = a.data, a.status, dict(a.headers)
        wanted = to.headers.get("Range")
        validator = to.headers.get("If-Range")
        fits = a.ignores_validator or validator in (None, a.tag, a.modified)
        if wanted and a.ranges and status == 200 and fits:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(body):
                status, extra["Content-Range"], body = 416, f"bytes */{len(a.data)}", b""
            else:
                start += a.shift
                status, body = 206, body[start:]
                extra["Content-Range"] = f"bytes {start}-{len(a.data) - 1}/{len(a.data)}"
        to.send_response(status)
        to.send_header("Content-Type", a.kind)
        if a.length is not None:
            to.send_header("Content-Length", str(len(body) if a.length == -1 else a.length))
        if a.tag:
            to.send_header("ETag", a.tag)
        if a.modified:
            to.send_header("Last-Modified", a.modified)
        for name, value in extra.items():
            to.send_header(name, value)
        lying = a.length not in (-1, len(body))
        if lying or a.stop_at is not None:
            to.send_header("Connection", "close")
            to.close_connection = True
        to.end_headers()
        to.wfile.write(body[: a.stop_at])


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture(autouse=True)
def _loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test may speak to anything but this machine, whatever the code under test does."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if not str(address[0]).startswith("127."):
            raise AssertionError(f"a test tried to reach {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


def entry(*mirrors: str, name: str = "set.npy", **facts: Any) -> PublishedSet:
    return PublishedSet(
        name="small-set",
        title="A small set",
        homepage="",
        licence="none",
        citation="none",
        label_space="cifar-10",
        layout="arrays",
        files=(PublishedFile(name=name, mirrors=mirrors, **facts),),
    )


def known(*mirrors: str) -> PublishedSet:
    return entry(*mirrors, bytes=len(DATA), sha256=SHA)


def get(
    what: PublishedSet, folder: Path, *, attempts: int = 3, **options: Any
) -> tuple[Fetched, list[float]]:
    pauses: list[float] = []
    patience = Patience(attempts=attempts, pause=0.5, sleep=pauses.append)
    return fetch(what, folder, patience=patience, **options), pauses


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_plain_download_is_verified_recorded_and_left_clean(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/set.npy"] = [Answer()]
    seen: list[tuple[str, int, int | None]] = []
    got, pauses = get(
        known(f"{server.base}/set.npy"), tmp_path, progress=lambda *told: seen.append(told)
    )
    (file,) = got.files
    assert file.path.read_bytes() == DATA
    assert (file.bytes, file.sha256, file.trust) == (len(DATA), SHA, "registry")
    assert file.source == f"{server.base}/set.npy" and file.note == ""
    assert names(tmp_path) == ["set.npy", "set.npy.fetched.json"]
    record = json.loads((tmp_path / "set.npy.fetched.json").read_text())
    assert (record["sha256"], record["bytes"], record["trust"]) == (SHA, len(DATA), "registry")
    assert seen[-1] == ("set.npy", len(DATA), len(DATA))
    assert [done for _, done, _ in seen] == sorted({done for _, done, _ in seen})
    assert not pauses


def test_the_same_call_again_asks_nobody(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer()]
    what = known(f"{server.base}/set.npy")
    get(what, tmp_path)
    again, _ = get(what, tmp_path)
    assert again.files[0].source == "there" and again.files[0].trust == "registry"
    assert len(server.requests) == 1


@pytest.mark.parametrize("breaks", [1, 7, 100_000, len(DATA) - 1])
def test_a_download_that_breaks_off_is_gone_on_with(
    server: Server, tmp_path: Path, breaks: int
) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=breaks), Answer()]
    got, pauses = get(known(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, f"bytes={breaks}-"]
    assert server.requests[1][1]["if-range"] == '"one"'
    assert pauses == [0.5]


def test_every_byte_may_come_by_itself(server: Server, tmp_path: Path) -> None:
    data = b"\x93NUMPY-and-more"
    server.scripts["/set.npy"] = [Answer(data, stop_at=1)] * len(data)
    what = entry(f"{server.base}/set.npy", sha256=hashlib.sha256(data).hexdigest())
    got, _ = get(what, tmp_path, attempts=len(data) + 1)
    assert got.files[0].path.read_bytes() == data
    assert server.ranges()[-1] == f"bytes={len(data) - 1}-"


def test_a_later_run_goes_on_with_the_part(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=5000), Answer(status=503)]
    what = known(f"{server.base}/set.npy")
    with pytest.raises(UserError, match="answers 503"):
        get(what, tmp_path)
    assert names(tmp_path) == ["set.npy.part", "set.npy.part.json"]
    assert (tmp_path / "set.npy.part").read_bytes() == DATA[:5000]
    server.scripts["/set.npy"] = [Answer()]
    server.requests.clear()
    assert get(what, tmp_path)[0].files[0].path.read_bytes() == DATA
    assert server.ranges() == ["bytes=5000-"]


def test_a_server_without_ranges_starts_again_cleanly(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=9000), Answer(ranges=False)]
    got, _ = get(known(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, "bytes=9000-"]


@pytest.mark.parametrize("facts", [{"sha256": hashlib.sha256(OTHER).hexdigest()}, {}])
def test_a_file_that_changes_between_tries_is_never_joined(
    server: Server, tmp_path: Path, facts: dict[str, str]
) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=9000), Answer(OTHER, tag='"two"')]
    got, _ = get(entry(f"{server.base}/set.npy", **facts), tmp_path)
    assert got.files[0].path.read_bytes() == OTHER


def test_a_file_that_changes_behind_an_unchanged_tag_is_found_by_its_checksum(
    server: Server, tmp_path: Path
) -> None:
    changed = DATA[:9000] + OTHER[9000:]
    server.scripts["/set.npy"] = [Answer(OTHER, stop_at=9000), Answer(changed)]
    what = entry(f"{server.base}/set.npy", sha256=hashlib.sha256(changed).hexdigest())
    got, _ = get(what, tmp_path)
    assert got.files[0].path.read_bytes() == changed
    assert server.ranges() == [None, "bytes=9000-", None][: len(server.requests)]


def test_a_stale_part_of_another_file_is_given_up_for_the_right_one(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "set.npy.part").write_bytes(OTHER[:4000])
    server.scripts["/set.npy"] = [Answer()]
    got, _ = get(known(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == ["bytes=4000-", None]


@pytest.mark.parametrize("stale", [DATA, DATA + b"more", OTHER])
def test_a_part_as_long_as_the_file_or_longer(server: Server, tmp_path: Path, stale: bytes) -> None:
    (tmp_path / "set.npy.part").write_bytes(stale)
    server.scripts["/set.npy"] = [Answer()]
    got, _ = get(known(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    if stale == DATA:  # all is here: the server only says so
        assert server.ranges() == [f"bytes={len(DATA)}-"]


def test_without_validator_and_checksum_nothing_is_joined(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=9000, tag=None), Answer(tag=None)]
    got, _ = get(entry(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, None]


def test_a_weak_tag_is_no_ground_to_join_on_but_a_date_is(server: Server, tmp_path: Path) -> None:
    date = "Tue, 21 May 2019 18:03:38 GMT"
    plain = Answer(tag='W/"one"', modified=date)
    server.scripts["/set.npy"] = [
        Answer(tag='W/"one"', modified=date, stop_at=9000),
        plain,
    ]
    got, _ = get(entry(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.requests[1][1]["if-range"] == date


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Answer(status=404), "answers 404 Not Found"),
        (Answer(status=403), "answers 403 Forbidden"),
        (Answer(b"<html>sorry"), "a web page instead"),
        (Answer(b"\n <!DOCTYPE html><p>quota exceeded"), "a web page instead"),
        (Answer(b"<?xml version='1.0'?><Error>AccessDenied</Error>"), "a web page instead"),
        (Answer(b""), "answers with nothing"),
        (Answer(DATA[:-1]), f"offers {len(DATA) - 1} bytes, the registry says {len(DATA)}"),
        (Answer(length=len(DATA) + 10), f"offers {len(DATA) + 10} bytes"),
        (Answer(length=len(DATA) - 10), f"offers {len(DATA) - 10} bytes"),
        (Answer(OTHER), f"gave a file that has sha256 {hashlib.sha256(OTHER).hexdigest()}"),
    ],
)
def test_bad_answers_are_refused_for_the_next_mirror(
    server: Server, tmp_path: Path, answer: Answer, reason: str
) -> None:
    server.scripts["/bad.npy"] = [answer]
    server.scripts["/good.npy"] = [Answer()]
    got, pauses = get(known(f"{server.base}/bad.npy", f"{server.base}/good.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert got.files[0].source.endswith("/good.npy")
    assert not pauses
    with pytest.raises(UserError) as raised:
        get(known(f"{server.base}/bad.npy"), tmp_path / "alone")
    assert reason in raised.value.line
    assert "\n" not in raised.value.line and "--local FILE" in raised.value.line
    assert not (tmp_path / "alone" / "set.npy").exists()


def test_an_error_page_does_not_cost_the_part(server: Server, tmp_path: Path) -> None:
    server.scripts["/one.npy"] = [Answer(stop_at=9000), Answer(status=404)]
    server.scripts["/two.npy"] = [Answer(b"<!doctype html>", ranges=False, length=None)]
    with pytest.raises(UserError):
        get(known(f"{server.base}/one.npy", f"{server.base}/two.npy"), tmp_path)
    assert (tmp_path / "set.npy.part").read_bytes() == DATA[:9000]


def test_a_length_that_is_never_reached_is_said(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(length=len(DATA) + 10, ranges=False)]
    with pytest.raises(UserError, match=f"broke off at {len(DATA)} of {len(DATA) + 10} bytes"):
        get(entry(f"{server.base}/set.npy"), tmp_path)


def test_a_range_that_starts_elsewhere_is_not_joined(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(stop_at=9000), Answer(shift=-100), Answer()]
    got, _ = get(known(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, "bytes=9000-", None]


def test_busy_servers_are_asked_again_with_growing_pauses(server: Server, tmp_path: Path) -> None:
    busy = Answer(b"", 503)
    asks = Answer(b"", 429, headers={"Retry-After": "7"})
    forever = Answer(b"", 503, headers={"Retry-After": "999999"})
    server.scripts["/set.npy"] = [busy, busy, asks, forever, Answer()]
    got, pauses = get(known(f"{server.base}/set.npy"), tmp_path, attempts=5)
    assert got.files[0].path.read_bytes() == DATA
    assert pauses == [0.5, 1.0, 7.0, 60.0]


def test_attempts_are_bounded_and_every_mirror_is_listed(server: Server, tmp_path: Path) -> None:
    server.scripts["/a.npy"] = [Answer(b"", 503)]
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
    with pytest.raises(UserError) as raised:
        get(known(f"{server.base}/a.npy", f"http://127.0.0.1:{port}/b.npy"), tmp_path, attempts=3)
    assert len(server.requests) == 3
    line = raised.value.line
    assert f"{server.base}/a.npy answers 503" in line
    assert f"http://127.0.0.1:{port}/b.npy" in line and "refused" in line


def test_progress_renews_the_attempts(server: Server, tmp_path: Path) -> None:
    data = b"\x93NUMPY" + bytes(5 << 20)
    cut = [Answer(data, stop_at=(1 << 20) + 5) for _ in range(4)]
    server.scripts["/set.npy"] = [*cut, Answer(data)]
    what = entry(f"{server.base}/set.npy", sha256=hashlib.sha256(data).hexdigest())
    got, pauses = get(what, tmp_path, attempts=2)
    assert got.files[0].path.read_bytes() == data
    assert pauses == [0.5] * 4


def test_another_mirror_goes_on_where_the_first_one_stopped(server: Server, tmp_path: Path) -> None:
    server.scripts["/one.npy"] = [Answer(stop_at=9000), Answer(status=404)]
    server.scripts["/two.npy"] = [Answer(tag='"other server"')]
    got, _ = get(known(f"{server.base}/one.npy", f"{server.base}/two.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, "bytes=9000-", "bytes=9000-"]


def test_another_mirror_starts_afresh_where_no_checksum_would_tell(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/one.npy"] = [Answer(OTHER, stop_at=9000), Answer(status=404)]
    server.scripts["/two.npy"] = [Answer()]
    got, _ = get(entry(f"{server.base}/one.npy", f"{server.base}/two.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, "bytes=9000-", None]


def test_redirects_are_followed_with_the_range(server: Server, tmp_path: Path) -> None:
    server.scripts["/old.npy"] = [Answer(b"", 302, headers={"Location": "/new.npy"}, tag=None)]
    server.scripts["/new.npy"] = [Answer(stop_at=9000), Answer()]
    got, _ = get(known(f"{server.base}/old.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert [path for path, _ in server.requests] == ["/old.npy", "/new.npy"] * 2
    assert server.ranges() == [None, None, "bytes=9000-", "bytes=9000-"]


def test_endless_redirects_end(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer(b"", 302, headers={"Location": "/set.npy"})]
    with pytest.raises(UserError, match="redirects"):
        get(known(f"{server.base}/set.npy"), tmp_path)


@pytest.mark.usefixtures("internet")
def test_a_chunked_answer_without_length(liar: LyingServer, tmp_path: Path) -> None:
    def mood(ask: Asked) -> None:
        ask.head(Transfer_Encoding="chunked")
        ask.send(b"64\r\n" + DATA[:100] + b"\r\n%x\r\n" % (len(DATA) - 100) + DATA[100:])
        ask.send(b"\r\n0\r\n\r\n")

    liar.mood = mood
    got, _ = get(entry(liar.url()), tmp_path)
    assert got.files[0].path.read_bytes() == DATA


@pytest.mark.parametrize("mood", MOODS, ids=lambda mood: mood.__name__)
def test_no_mood_of_a_mirror_makes_a_download_endless(
    liar: LyingServer,
    internet: Internet,
    tmp_path: Path,
    mood: Mood,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * SIZE))
    liar.mood = mood
    longest = 0

    def progress(name: str, done: int, total: int | None) -> None:
        nonlocal longest
        longest = max(longest, done)

    pauses: list[float] = []
    patience = Patience(attempts=3, silence=0.2, sleep=pauses.append)
    right = hashlib.sha256(FILE).hexdigest()
    for facts in ({"bytes": SIZE, "sha256": right}, {"bytes": SIZE}, {"sha256": right}):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        liar.requests.clear()
        liar.sent = longest = 0
        may_pass = mood is has_the_wrong_bytes or mood is joins_the_wrong_bytes
        try:
            got = fetch(entry(liar.url(), **facts), folder, patience=patience, progress=progress)
            assert may_pass and "sha256" not in facts and got.files[0].trust == "first use"
        except UserError as error:
            assert "could not be fetched" in error.line
            assert not (folder / "set.npy").exists()
        # Three attempts, renewed by each of three mebibytes.
        assert len(liar.requests) <= 3 * (SIZE // (1 << 20) + 1)
        assert longest <= SIZE and liar.sent < 3 * SIZE + ENOUGH // 2
    assert all(pause <= 60 for pause in pauses)
    assert set(internet.reached) == {("127.0.0.1", liar.port)}


@pytest.mark.usefixtures("internet")
def test_progress_that_is_none_does_not_renew_a_download_for_ever(
    liar: LyingServer, tmp_path: Path
) -> None:
    """Each time a mebibyte more than ever before, and then from the beginning again."""
    size = 16 << 20

    def mood(ask: Asked) -> None:
        if ask.start:
            ask.part(0, 1)
        else:
            ask.head(Content_Length=size)
            ask.send(bytes(min((ask.number // 2 + 1) * 1_100_000, size - 1)))

    liar.mood = mood
    with pytest.raises(UserError, match="sends more than"):
        get(entry(liar.url(), bytes=size, sha256="0" * 64), tmp_path, attempts=3)
    assert liar.sent < 3 * size + ENOUGH // 4


def test_a_mirror_does_not_lead_to_private_addresses(
    liar: LyingServer, internet: Internet, tmp_path: Path
) -> None:
    secret = LyingServer()
    liar.mood = lambda ask: ask.head("302 Found", Location=secret.url("localhost"))
    with pytest.raises(UserError, match="private address"):
        get(known(), tmp_path, mirrors=[liar.url(path="sets")])
    secret.close()
    assert not secret.requests and set(internet.reached) == {("127.0.0.1", liar.port)}


@pytest.mark.usefixtures("internet")
def test_an_answer_that_may_have_no_end_stops_where_there_is_room(
    liar: LyingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4 << 20))
    facts = {"sha256": "0" * 64}
    liar.mood = is_too_long
    with pytest.raises(UserError, match=f"sends more than the {2 << 20} bytes"):
        get(entry(liar.url(), **facts), tmp_path)
    liar.mood = is_longer_than_it_says
    with pytest.raises(UserError, match=f"sends more than the {2 << 20} bytes"):
        get(entry(liar.url(), **facts), tmp_path)

    def claims(ask: Asked) -> None:
        ask.head(Content_Length=10**12)
        ask.send(b"x")

    liar.mood = claims
    with pytest.raises(UserError, match=f"there is room for {2 << 20}"):
        get(entry(liar.url(), **facts), tmp_path)


def test_a_range_of_a_file_that_has_changed_is_not_joined(server: Server, tmp_path: Path) -> None:
    """The server ignores If-Range, and says by its tag that the file is another."""
    server.scripts["/set.npy"] = [
        Answer(OTHER, tag='"two"', stop_at=9000),
        Answer(ignores_validator=True),
        Answer(),
    ]
    got, _ = get(entry(f"{server.base}/set.npy"), tmp_path)
    assert got.files[0].path.read_bytes() == DATA
    assert server.ranges() == [None, "bytes=9000-", None]


def test_passwords_of_mirrors_are_neither_shown_nor_stored(server: Server, tmp_path: Path) -> None:
    url = server.base.replace("http://", "http://me:secret@")
    server.scripts["/set.npy"] = [Answer(stop_at=5000), Answer(status=404)]
    with pytest.raises(UserError) as caught:
        get(known(), tmp_path, mirrors=[url])
    stored = [path.read_bytes() for path in tmp_path.iterdir()]
    server.scripts["/set.npy"] = [Answer()]
    got, _ = get(known(), tmp_path, mirrors=[url])
    assert server.ranges() == [None, "bytes=5000-", "bytes=5000-"]
    assert all("authorization" in headers for _, headers in server.requests)
    assert got.files[0].source == server.base.replace("http://", "http://***@") + "/set.npy"
    stored += [path.read_bytes() for path in tmp_path.iterdir()]
    assert len(stored) == 4
    assert "secret" not in caught.value.line and not any(b"secret" in data for data in stored)


def test_no_length_at_all_is_taken_only_where_a_break_would_show(
    server: Server, tmp_path: Path
) -> None:
    server.scripts["/set.npy"] = [Answer(length=None)]
    with pytest.raises(UserError, match="does not say how long"):
        get(entry(f"{server.base}/set.npy"), tmp_path)
    assert get(known(f"{server.base}/set.npy"), tmp_path)[0].files[0].bytes == len(DATA)


def test_trust_on_first_use_is_said_and_held_to(server: Server, tmp_path: Path) -> None:
    what = entry(f"{server.base}/set.npy")
    server.scripts["/set.npy"] = [Answer()]
    (first,) = get(what, tmp_path)[0].files
    assert first.trust == "first use"
    assert "trusted on first use" in first.note and SHA in first.note
    assert get(what, tmp_path)[0].files[0].trust == "record"
    first.path.unlink()
    (again,) = get(what, tmp_path)[0].files
    assert (again.trust, again.note) == ("record", "")
    first.path.unlink()
    server.scripts["/set.npy"] = [Answer(OTHER)]
    with pytest.raises(UserError, match=f"and {SHA} was seen at first"):
        get(what, tmp_path)
    assert not first.path.exists()


def test_a_file_in_place_that_went_bad_is_named(tmp_path: Path) -> None:
    what = known("http://127.0.0.1:9/set.npy")
    (tmp_path / "set.npy").write_bytes(OTHER)
    with pytest.raises(BadFile, match=r"set\.npy: has sha256 .*remove it and fetch again"):
        get(what, tmp_path)
    (tmp_path / "set.npy").write_bytes(DATA[:100])
    with pytest.raises(BadFile, match="has 100 bytes"):
        get(what, tmp_path)


def test_md5_alone_is_enough_to_verify(tmp_path: Path) -> None:
    source = tmp_path / "mine.npy"
    source.write_bytes(DATA)
    md5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()
    assert get(entry(md5=md5), tmp_path / "a", source=source)[0].files[0].trust == "registry"
    with pytest.raises(BadFile, match="has md5"):
        get(entry(md5="0" * 32), tmp_path / "b", source=source)


def test_local_files_are_adopted_after_the_same_checks(tmp_path: Path) -> None:
    source = tmp_path / "downloaded by hand"
    source.write_bytes(DATA)
    (file,) = get(known(), tmp_path / "there", source=source)[0].files
    assert file.path == tmp_path / "there" / "set.npy" and file.path.read_bytes() == DATA
    assert (file.trust, file.source) == ("registry", "file")
    assert source.exists()
    source.write_bytes(OTHER)
    with pytest.raises(BadFile, match="downloaded by hand: has sha256"):
        get(known(), tmp_path / "elsewhere", source=source)
    assert not (tmp_path / "elsewhere" / "set.npy").exists()


def test_sets_of_several_files(server: Server, tmp_path: Path) -> None:
    both = msgspec.structs.replace(
        known(),
        files=(
            PublishedFile(name="a.npy", sha256=SHA, mirrors=(f"{server.base}/a.npy",)),
            PublishedFile(name="b.csv", mirrors=(f"{server.base}/b.csv",)),
        ),
    )
    server.scripts |= {"/a.npy": [Answer()], "/b.csv": [Answer(b"x,y\n", kind="text/csv")]}
    got, _ = get(both, tmp_path / "web")
    assert [file.trust for file in got.files] == ["registry", "first use"]
    got, _ = get(both, tmp_path / "disk", source=tmp_path / "web")
    assert [file.source for file in got.files] == ["file", "file"]
    (tmp_path / "one").write_bytes(DATA)
    with pytest.raises(UserError, match=r"give a folder with a\.npy, b\.csv"):
        get(both, tmp_path / "no", source=tmp_path / "one")
    with pytest.raises(NotFound, match="small-set needs"):
        get(both, tmp_path / "no", source=tmp_path / "nowhere")


def test_own_mirrors_come_first(server: Server, tmp_path: Path) -> None:
    server.scripts["/mine/set.npy"] = [Answer()]
    got, _ = get(known("http://127.0.0.1:9/set.npy"), tmp_path, mirrors=[f"{server.base}/mine/"])
    assert got.files[0].source == f"{server.base}/mine/set.npy"


def test_sets_behind_terms_say_what_a_person_has_to_do(tmp_path: Path) -> None:
    what = registry.find(registry.load(), "objectnet")
    with pytest.raises(NotFound, match=r"accept the terms at https://objectnet\.dev.*--local FILE"):
        fetch(what, tmp_path)


def test_two_processes_do_not_write_one_part(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer()]
    with (
        holding(tmp_path / "set.npy.part"),
        pytest.raises(UserError, match="another process"),
    ):
        get(known(f"{server.base}/set.npy"), tmp_path)
    assert get(known(f"{server.base}/set.npy"), tmp_path)[0].files[0].bytes == len(DATA)


def test_a_file_too_large_for_the_disk_is_refused_first(server: Server, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make room"):
        get(entry(f"{server.base}/set.npy", bytes=10**18), tmp_path)
    assert not server.requests


def test_odd_addresses_fail_like_any_mirror(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="could not be fetched"):
        get(known("http://127.0.0.1:notaport/x", "http:///x"), tmp_path)


def test_it_asks_for_plain_bytes_and_says_who_it_is(server: Server, tmp_path: Path) -> None:
    server.scripts["/set.npy"] = [Answer()]
    get(known(f"{server.base}/set.npy"), tmp_path)
    ((_, headers),) = server.requests
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"].startswith("heldout/")


def test_the_built_in_registry_is_whole() -> None:
    entries = registry.load()
    names = {entry.name for entry in entries}
    assert {"imagenetv2-a-44", "imagenetv2-b-33", "imagenetv2-c-12"} <= names
    assert {"siscore-size-1", "siscore-location-1", "siscore-rotation-1"} <= names
    assert {"imagenet-a", "imagenet-r", "imagenet-sketch", "cifar-10.1-v6"} <= names
    for each in entries:
        assert each.licence and each.citation and each.homepage
        assert each.by_hand or all(file.mirrors for file in each.files)
        for file in each.files:
            assert all(mirror.startswith("https://") for mirror in file.mirrors)
    assert registry.find(entries, "imagenetv2-matched-frequency").name == "imagenetv2-b-33"
    with pytest.raises(NotFound, match="imagenetv2-a-44"):
        registry.find(entries, "imagenetv3")


def test_the_registry_speaks_the_names_of_the_other_rooms() -> None:
    entries = registry.load()
    spaces = {entry.label_space for entry in entries}
    assert spaces - set(BUILT_IN) == {"objectnet"}
    for name, aliases in ALIASES.items():
        assert set(aliases) <= set(registry.find(entries, name).aliases)


def test_sizes_of_cifar_arrays_fit_their_counts() -> None:
    for each in registry.load():
        if each.layout == "arrays":
            data, labels = each.files
            assert each.images is not None
            assert data.bytes == 128 + each.images * 32 * 32 * 3
            assert labels.bytes == 128 + each.images * 4


GOOD = """
schema_version = 1
[[testset]]
name = "mine"
title = "t"
homepage = "h"
licence = "l"
citation = "c"
label_space = "cifar-10"
layout = "arrays"
[[testset.file]]
name = "a.npy"
mirrors = ["https://127.0.0.1/a.npy"]
"""


def edited(old: str, new: str) -> Callable[[], str]:
    return lambda: GOOD.replace(old, new)


def test_a_users_registry_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD)
    (mine,) = registry.load(path)
    assert (mine.name, mine.bytes, mine.images) == ("mine", None, None)
    path.write_text(GOOD + "bytes = 7")
    (mine,) = registry.load(path)
    listed = {"name": "mine", "title": "t", "licence": "l", "bytes": 7}
    assert to_dict(mine) == {"record": "published-testset", **listed}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (edited("schema_version = 1", "schema_version = 2"), "schema_version 2"),
        (edited("schema_version = 1", ""), "no schema_version"),
        (edited("[[testset]]", "[[testset"), "not valid TOML"),
        (edited('title = "t"', ""), "testset[0]: Object missing required field title"),
        (edited('title = "t"', "title = 3"), "testset[0].title: Expected str"),
        (edited('title = "t"', 'titel = "t"\ntitle = "t"'), "unknown field 'titel'"),
        (edited('name = "a.npy"', 'name = "../a.npy"'), "file[0].name"),
        (edited('name = "a.npy"', 'name = ".a"'), "file[0].name"),
        (edited('name = "a.npy"', 'name = "a.npy"\nsha256 = "abc"'), "file[0].sha256"),
        (edited('name = "a.npy"', 'name = "a.npy"\nbytes = true'), "file[0].bytes"),
        (edited("https://", "ftp://"), "mirrors[0]"),
        (edited('layout = "arrays"', 'layout = "heap"'), "layout"),
        (lambda: GOOD + GOOD.replace("schema_version = 1", ""), "two test sets called 'mine'"),
        (lambda: GOOD + '[[testset.file]]\nname = "a.npy"\nmirrors = []', "its own name"),
        (lambda: "schema_version = 1\ntestset = 3", "testset: Expected array"),
    ],
)
def test_a_bad_registry_is_named_with_the_place(
    tmp_path: Path, text: Callable[[], str], message: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text())
    with pytest.raises(BadFile) as raised:
        registry.load(path)
    where, found, _ = raised.value.line.partition(message)
    assert found and str(path) in where


def test_a_missing_registry_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nothing\.toml"):
        registry.load(tmp_path / "nothing.toml")
