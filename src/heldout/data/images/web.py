"""Images on a web server."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO
from urllib.parse import quote

from heldout.core.errors import NotApplicable, UserError
from heldout.data.images.source import MAX_IMAGE_BYTES, check_id, check_size, no_image

_ATTEMPTS = 4
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


class WebSource:
    """The images below a URL such as ``https://host/folder``; an id is the path from there.

    A web server cannot be listed, so the ids come with it: those of a test set, mostly. A server
    that does not answer, after several attempts, raises ``ConnectionError``: no image is bad for
    that.
    """

    def __init__(
        self,
        url: str,
        *,
        ids: Sequence[str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = url.rstrip("/")
        self._ids = None if ids is None else tuple(sorted({check_id(key) for key in ids}))
        self._sleep = sleep
        self._client: Any = None
        self._lock = threading.Lock()

    def ids(self) -> Sequence[str]:
        """The ids that were given, sorted."""
        if self._ids is None:
            raise NotApplicable(
                f"{self.url} is on a web server, which cannot be listed",
                fix="give the ids, for example those of a test set",
            )
        return self._ids

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, fetched whole."""
        import httpx

        address = f"{self.url}/{quote(check_id(image_id))}"
        reason = ""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(2.0 ** (attempt - 1))
            try:
                with self._connected().stream("GET", address) as answer:
                    status = answer.status_code
                    if status == 200:
                        return io.BytesIO(_body(image_id, answer))
            except httpx.TransportError as error:
                reason = str(error) or type(error).__name__
                continue
            if status in (404, 410):
                raise no_image(image_id, self.url)
            if status in (401, 403):
                raise UserError(f"{address}: access denied", fix="use an address that is open")
            reason = f"answers {status}"
            if status not in _AGAIN:
                break
        raise ConnectionError(f"{address}: {reason}")

    def close(self) -> None:
        """Let go of connections; they are made again when the source is next used."""
        with self._lock:
            if self._client is not None:
                self._client.close()
                self._client = None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_ids": self._ids, "_sleep": self._sleep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _client=None, _lock=threading.Lock())

    def _connected(self) -> Any:
        import httpx

        with self._lock:
            if self._client is None:
                self._client = httpx.Client(follow_redirects=True, timeout=30.0)
            return self._client


def _body(image_id: str, answer: Any) -> bytes:
    """The body of an answer, given up where it grows beyond what an image may have."""
    size = answer.headers.get("content-length", "")
    check_size(image_id, int(size) if size.isdecimal() else 0)
    body = bytearray()
    for chunk in answer.iter_bytes():
        body += chunk
        if len(body) > MAX_IMAGE_BYTES:
            check_size(image_id, len(body))
    return bytes(body)
