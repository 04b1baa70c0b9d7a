"""A loopback web server of images, with an answer of its own for each path."""

from __future__ import annotations

import contextlib
import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest
from PIL import Image

Answer = Callable[[BaseHTTPRequestHandler, int], None]
"""Writes an answer; the number counts the requests for this path, from 1."""


def photo(seed: int, size: tuple[int, int] = (60, 40)) -> Image.Image:
    """A picture of coloured blocks, each one its own, which JPEG keeps."""
    rng = np.random.default_rng(seed)
    blocks = Image.fromarray(rng.integers(0, 256, (3, 4, 3), dtype=np.uint8))
    return blocks.resize(size, Image.Resampling.NEAREST)


def encoded(image: Image.Image, form: str = "JPEG", **options: Any) -> bytes:
    handle = io.BytesIO()
    image.save(handle, form, **options)
    return handle.getvalue()


def sends(data: bytes, *, length: int | None = None, status: int = 200, **headers: str) -> Answer:
    """An answer with these bytes, whose length may be a lie."""

    def answer(to: BaseHTTPRequestHandler, _: int) -> None:
        to.send_response(status)
        to.send_header("Content-Length", str(len(data) if length is None else length))
        for name, value in headers.items():
            to.send_header(name.replace("_", "-"), value)
        to.send_header("Connection", "close")
        to.close_connection = True
        to.end_headers()
        to.wfile.write(data)

    return answer


def after(times: int, first: Answer, then: Answer) -> Answer:
    """Another answer from request number ``times + 1`` on."""
    return lambda to, number: (first if number <= times else then)(to, number)


class ImageServer:
    """Answers by ``answers``; ``asked`` has the path of every request, ``most`` how many were open
    at once."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[str] = []
        self.most = self._open = 0
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                with outer._lock:
                    outer.asked.append(self.path)
                    outer._open += 1
                    outer.most = max(outer.most, outer._open)
                    number = outer.asked.count(self.path)
                try:
                    default = sends(b"nothing here", status=404)
                    with contextlib.suppress(OSError):  # a client that leaves early
                        outer.answers.get(self.path, default)(self, number)
                finally:
                    with outer._lock:
                        outer._open -= 1

            def log_message(self, *args: Any) -> None:
                pass

        class Quiet(ThreadingHTTPServer):
            def handle_error(self, *args: Any) -> None:
                pass

        self.http = Quiet(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.http.server_address[1]}"

    def url(self, path: str, host: str = "") -> str:
        return f"http://{host or self.host}{path}"

    def serve(self, path: str, data: bytes) -> str:
        """Serve these bytes; their address."""
        self.answers[path] = sends(data)
        return self.url(path)

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ImageServer]:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    made = ImageServer()
    yield made
    made.close()
