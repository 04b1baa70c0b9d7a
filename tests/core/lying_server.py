"""A loopback web server that lies in many moods, and an internet of names that leads to it.

Each mood is a function that writes an answer as raw bytes. All of them end by themselves after
``ENOUGH`` bytes, so that a client without bounds fails a test and does not hang it.
"""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

SIZE = 3 << 20
DATA = (bytes(range(251)) * (SIZE // 251 + 1))[:SIZE]
ENOUGH = 48 << 20
BOMB = gzip.compress(bytes(256 << 20), compresslevel=9)


@dataclass
class Asked:
    """One request: its path and headers, where its range starts, and how to answer it."""

    path: str
    headers: dict[str, str]
    start: int | None
    number: int
    send: Callable[[bytes], None]

    def head(self, status: str = "200 OK", **headers: object) -> None:
        lines = [f"HTTP/1.1 {status}", 'ETag: "one"', "Connection: close"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.send("\r\n".join([*lines, "", ""]).encode())

    def part(self, start: int, end: int, *, says: str | None = None) -> None:
        """The data from ``start``, cut off before ``end``; or the same, said to be of elsewhere."""
        self.head(
            "206 Partial Content",
            Content_Range=says or f"bytes {start}-{SIZE - 1}/{SIZE}",
            Content_Length=SIZE - start,
        )
        self.send(DATA[start:end])


Mood = Callable[[Asked], None]


def honest(ask: Asked) -> None:
    if ask.start:
        ask.part(ask.start, SIZE)
    else:
        ask.head(Content_Length=SIZE)
        ask.send(DATA)


def resumes_at_the_wrong_place(ask: Asked) -> None:
    """Drops in the middle, and then sends the file from its beginning as if it were the rest."""
    if ask.start:
        ask.part(0, 1000)
    else:
        ask.head(Content_Length=SIZE)
        ask.send(DATA[: 2 << 20])


def gains_and_forgets(ask: Asked) -> None:
    """Each time a mebibyte more, and each second time the wrong place: progress that is none."""
    if ask.start:
        ask.part(0, 1)
    else:
        ask.head(Content_Length=SIZE)
        ask.send(DATA[: min((ask.number // 2 + 1) * 1_100_000, SIZE - 1)])


def never_resumes(ask: Asked) -> None:
    """Ignores Range, and breaks off just before the end."""
    ask.head(Content_Length=SIZE)
    ask.send(DATA[:-1])


def is_too_long(ask: Asked) -> None:
    """Chunks without end."""
    ask.head(Transfer_Encoding="chunked")
    for _ in range(ENOUGH >> 16):
        ask.send(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


def pads_its_chunks(ask: Asked) -> None:
    """A byte of the file in every 60 kB."""
    ask.head(Transfer_Encoding="chunked")
    for _ in range(ENOUGH // 60_000):
        ask.send(b"1;" + b"x" * 60_000 + b"\r\nx\r\n")


def is_longer_than_it_says(ask: Asked) -> None:
    """A range of a file of unknown length that never ends."""
    ask.head(
        "206 Partial Content",
        Content_Range=f"bytes {ask.start or 0}-{10**12}/*",
        Content_Length=10**12,
    )
    for _ in range(ENOUGH >> 16):
        ask.send(bytes(1 << 16))


def is_too_short(ask: Asked) -> None:
    ask.head(Content_Length=SIZE - 1)
    ask.send(DATA[:-1])


def states_a_wrong_length(ask: Asked) -> None:
    ask.head(Content_Length=SIZE)
    ask.send(DATA[:100])


def has_the_wrong_bytes(ask: Asked) -> None:
    ask.head(Content_Length=SIZE)
    ask.send(bytes(SIZE))


def joins_the_wrong_bytes(ask: Asked) -> None:
    """Breaks off and resumes where it should, each time with other bytes."""
    if ask.start:
        ask.head(
            "206 Partial Content",
            Content_Range=f"bytes {ask.start}-{SIZE - 1}/{SIZE}",
            Content_Length=SIZE - ask.start,
        )
        ask.send(bytes(SIZE - ask.start))
    else:
        ask.head(Content_Length=SIZE)
        ask.send(DATA[: SIZE // 2])


def redirects_for_ever(ask: Asked) -> None:
    ask.head("302 Found", Location=f"/redirects_for_ever/{ask.number}/set.npy", Content_Length=0)


def redirects_with_an_endless_page(ask: Asked) -> None:
    ask.head("302 Found", Location=f"/{ask.number}/set.npy", Content_Length=10**12)
    for _ in range(ENOUGH >> 16):
        ask.send(bytes(1 << 16))


def drips(ask: Asked) -> None:
    ask.head(Content_Length=SIZE)
    for byte in DATA[:300]:
        ask.send(bytes([byte]))
        time.sleep(0.02)


def drips_headers(ask: Asked) -> None:
    ask.send(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(300):
        ask.send(b"x")
        time.sleep(0.02)


def never_answers(ask: Asked) -> None:
    time.sleep(6)


def bombs(ask: Asked) -> None:
    """A quarter of a megabyte that unpacks to 256 MiB, though nobody asked for it compressed."""
    ask.head(Content_Length=len(BOMB), Content_Encoding="gzip")
    ask.send(BOMB)


def sends_another_range(ask: Asked) -> None:
    ask.part(ask.start or 0, SIZE, says=f"bytes {SIZE}-{2 * SIZE}/{3 * SIZE}")


def sends_no_range(ask: Asked) -> None:
    ask.part(ask.start or 0, SIZE, says="bytes of it")


def has_nothing_left(ask: Asked) -> None:
    """Breaks off, and then says that the file is shorter than what it sent."""
    if ask.start:
        ask.head("416 Range Not Satisfiable", Content_Range="bytes */10", Content_Length=0)
    else:
        ask.head(Content_Length=SIZE)
        ask.send(DATA[: SIZE // 2])


def greets_for_ever(ask: Asked) -> None:
    """Interim answers without end, each of them valid."""
    for _ in range(ENOUGH // 2500):
        ask.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)


def is_busy_for_ever(ask: Asked) -> None:
    ask.head("503 Service Unavailable", Retry_After=10**9, Content_Length=0)


MOODS: tuple[Mood, ...] = (
    resumes_at_the_wrong_place,
    gains_and_forgets,
    never_resumes,
    is_too_long,
    pads_its_chunks,
    is_longer_than_it_says,
    is_too_short,
    states_a_wrong_length,
    has_the_wrong_bytes,
    joins_the_wrong_bytes,
    redirects_for_ever,
    redirects_with_an_endless_page,
    drips,
    drips_headers,
    never_answers,
    bombs,
    sends_another_range,
    sends_no_range,
    has_nothing_left,
    greets_for_ever,
    is_busy_for_ever,
)


@dataclass
class LyingServer:
    """Answers every request in one mood; counts requests and the bytes that were taken from it."""

    mood: Mood = honest
    requests: list[Asked] = field(default_factory=list)
    sent: int = 0

    def __post_init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        # Small, and set before the connections: what is sent is what was taken, but for this.
        self._listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def url(self, host: str = "127.0.0.1", path: str = "set.npy") -> str:
        return f"http://{host}:{self.port}/{path}"

    def close(self) -> None:
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        def send(data: bytes) -> None:
            connection.sendall(data)
            self.sent += len(data)

        # A client that leaves early is part of the play.
        with connection, contextlib.suppress(OSError):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096) or b"\r\n\r\n"
            lines = head.decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines[1:])
            }
            wanted = headers.get("range", "").removeprefix("bytes=").removesuffix("-")
            start = int(wanted) if wanted else None
            path = lines[0].split(" ")[1] if " " in lines[0] else ""
            asked = Asked(path, headers, start, len(self.requests), send)
            self.requests.append(asked)
            if len(self.requests) > 200:
                raise AssertionError("a client without bounds")
            self.mood(asked)
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while connection.recv(1 << 16):  # until the client has what was sent
                pass


@pytest.fixture
def liar() -> Iterator[LyingServer]:
    """A server that lies once it is given a mood."""
    server = LyingServer()
    yield server
    server.close()


@dataclass
class Internet:
    """Names and addresses as a test wants them, all of which lead to this machine or nowhere.

    ``names``    a name's addresses, one list for each time it is looked up; the last one stays
    ``public``   public addresses that stand for this machine
    ``ports``    ports of this machine that stand for others
    ``reached``  every address and port that a connection was tried to
    """

    names: dict[str, list[list[str]]] = field(default_factory=dict)
    public: set[str] = field(default_factory=set)
    ports: dict[int, int] = field(default_factory=dict)
    reached: list[tuple[str, int]] = field(default_factory=list)


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    """No name is looked up outside the test, no packet leaves this machine."""
    made = Internet()
    look_up, connect = socket.getaddrinfo, socket.socket.connect

    def names(host: str, port: int, *rest: int, **more: int) -> list[tuple[object, ...]]:
        answers = made.names.get(host)
        if answers is None:
            if host.endswith(".test"):
                raise socket.gaierror(f"{host} is not known")
            return list(look_up(host, port, *rest, **more))
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [entry for one in found for entry in look_up(one, port, *rest, **more)]

    def guarded(self: socket.socket, address: tuple[str, int]) -> None:
        made.reached.append(address[:2])
        if address[0] in made.public:
            address = ("127.0.0.1", address[1])
        address = (address[0], made.ports.get(address[1], address[1]))
        if not address[0].startswith("127."):
            raise ConnectionRefusedError(f"a test tried to reach {address}")
        connect(self, address)

    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(socket, "getaddrinfo", names)
    monkeypatch.setattr(socket.socket, "connect", guarded)
    return made
