"""One file from one mirror: streamed, resumable, and suspicious of what it is told."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from heldout.core.errors import UserError
from heldout.core.files import read_json, write_json
from heldout.data.testset.registry import PublishedFile

if TYPE_CHECKING:
    import httpx

Progress = Callable[[str, int, int | None], None]
"""Called with the file's name, the bytes that are there, and the bytes in all where known."""

_ENOUGH = 1 << 20  # bytes that make an attempt worth another row of attempts
_RETRY = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_PAUSE = 60.0
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)\Z")
_MARKUP = re.compile(rb"\s*<(!doctype|html|head|body|\?xml|error)", re.IGNORECASE)


class MirrorFailed(Exception):
    """This mirror does not give the file; ``str`` says why in a few words."""


class _TryAgain(Exception):
    """This attempt failed in a way that may pass; ``wait`` is what the server asked for."""

    def __init__(self, reason: str, *, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How often and how long to try one mirror.

    ``attempts`` in a row without a further mebibyte end it; ``pause`` seconds come before the
    second, doubled for each further one.
    """

    attempts: int = 5
    pause: float = 1.0
    sleep: Callable[[float], None] = time.sleep


def new_client() -> httpx.Client:
    """A client for downloads; proxies and certificates come from the environment."""
    from importlib.metadata import PackageNotFoundError, version

    import httpx

    try:
        name = f"heldout/{version('heldout')}"
    except PackageNotFoundError:  # run from the source tree
        name = "heldout/source"
    return httpx.Client(
        follow_redirects=True,
        timeout=httpx.Timeout(60.0, connect=20.0),
        headers={"User-Agent": name, "Accept-Encoding": "identity"},
    )


def download(
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    file: PublishedFile,
    client: httpx.Client,
    patience: Patience,
    progress: Progress,
) -> bool:
    """Bring ``part`` to its full length from ``url``, going on where it stands.

    ``handle`` is the part as :func:`holding` opened it. Beside it lies ``<part>.json`` with the
    address and the validator it came with, so that a file that changed on the server is never
    joined to an older beginning. Returns whether the part was joined from several answers.
    """
    import httpx

    failures = 0
    while True:
        before = handle.seek(0, 2)
        try:
            return _attempt(url, part, handle, file=file, client=client, progress=progress)
        except (_TryAgain, httpx.TransportError) as error:
            gained = handle.seek(0, 2) - before
            failures = 1 if gained >= _ENOUGH else failures + 1
            if failures >= patience.attempts:
                raise MirrorFailed(_say(error)) from None
            asked = error.wait if isinstance(error, _TryAgain) else 0.0
            wait = max(asked, patience.pause * 2 ** (failures - 1))
            patience.sleep(min(wait, _LONGEST_PAUSE))
        except httpx.HTTPError as error:  # too many redirects and the like
            raise MirrorFailed(_say(error)) from None
        except httpx.InvalidURL as error:
            raise MirrorFailed(f"is not a web address ({error})") from None


def discard(part: Path) -> None:
    """Forget a part that leads nowhere."""
    part.unlink(missing_ok=True)
    _state_path(part).unlink(missing_ok=True)


def _attempt(
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    file: PublishedFile,
    client: httpx.Client,
    progress: Progress,
) -> bool:
    have = handle.seek(0, 2)
    headers = _resume_headers(url, part, have, file)
    if not headers:
        have = 0
    with client.stream("GET", url, headers=headers) as response:
        _check_answer(response, url, file)
        if response.status_code == 416:
            # Either the part is whole already, or it is of another file.
            if have and have == _total_of_416(response):
                return True
            handle.truncate(0)
            raise _TryAgain("the server has less than the part that is here")
        if response.status_code == 206:
            start, total = _range_of(response)
            if start != have:
                handle.truncate(0)
                raise _TryAgain(f"asked for bytes from {have}, got them from {start}")
        else:
            start, total = 0, _length_of(response)
        _receive(
            response, url, part, handle, start=start, total=total, file=file, progress=progress
        )
    return start > 0


def _receive(
    response: httpx.Response,
    url: str,
    part: Path,
    handle: BinaryIO,
    *,
    start: int,
    total: int | None,
    file: PublishedFile,
    progress: Progress,
) -> None:
    """Write the body of a good answer into the part, from byte ``start`` on."""
    import httpx

    got = start
    try:
        # Raw: an archive that a server labels as compressed must arrive as it is.
        chunks = response.iter_raw()
        first = next(chunks, b"")
        if start == 0:
            _check_start(first, file)
        _check_total(total, file, response)
        if start == 0:  # only now is an earlier part given up
            handle.truncate(0)
            _write_state(url, part, response)
        handle.seek(start)
        for chunk in chain([first], chunks):
            got += len(chunk)
            if total is not None and got > total:
                handle.truncate(0)
                raise MirrorFailed(f"sends more than the {total} bytes it promised")
            handle.write(chunk)
            handle.flush()  # what is on disk when the process dies can be gone on from
            progress(file.name, got, total)
    except httpx.RemoteProtocolError:
        raise _TryAgain(f"broke off at {got} of {total or 'unknown'} bytes") from None
    if total is not None and got < total:
        raise _TryAgain(f"broke off at {got} of {total} bytes")


def _resume_headers(url: str, part: Path, have: int, file: PublishedFile) -> dict[str, str]:
    """Headers that ask for the rest; none where it would not be safe to join it."""
    if not have or (file.bytes is not None and have > file.bytes):
        return {}
    state = _read_state(part)
    if state.get("url") == url and state.get("validator"):
        return {"Range": f"bytes={have}-", "If-Range": str(state["validator"])}
    if file.has_checksum:  # a wrong join would be found at the end
        return {"Range": f"bytes={have}-"}
    return {}


def _check_answer(response: httpx.Response, url: str, file: PublishedFile) -> None:
    if url.startswith("https://") and response.url.scheme != "https":
        raise MirrorFailed("redirects to an address without encryption")
    status = response.status_code
    if status in _RETRY:
        raise _TryAgain(f"answers {status} {response.reason_phrase}", wait=_retry_after(response))
    if status not in (200, 206, 416):
        raise MirrorFailed(f"answers {status} {response.reason_phrase}")
    kind = response.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml") and not file.name.endswith((".html", ".htm")):
        raise MirrorFailed("answers with a web page instead of the file")
    coding = response.headers.get("content-encoding", "identity").lower()
    if coding != "identity" and not file.name.endswith((".gz", ".tgz")):
        raise MirrorFailed(f"sends the file with the coding {coding}, which was not asked for")


def _check_start(chunk: bytes, file: PublishedFile) -> None:
    if not chunk:
        raise MirrorFailed("sends an empty file")
    if _MARKUP.match(chunk) and not file.name.endswith((".html", ".htm", ".xml", ".svg")):
        raise MirrorFailed("answers with a web page instead of the file")


def _check_total(total: int | None, file: PublishedFile, response: httpx.Response) -> None:
    if total is None:
        chunked = "chunked" in response.headers.get("transfer-encoding", "").lower()
        if file.bytes is None and not file.has_checksum and not chunked:
            raise MirrorFailed("does not say how long the file is, so a break could not be seen")
    elif file.bytes is not None and total != file.bytes:
        raise MirrorFailed(f"offers {total} bytes, the registry says {file.bytes}")


def _length_of(response: httpx.Response) -> int | None:
    text = response.headers.get("content-length", "")
    return int(text) if text.isdecimal() else None


def _range_of(response: httpx.Response) -> tuple[int, int | None]:
    match = _RANGE.match(response.headers.get("content-range", ""))
    if not match:
        raise MirrorFailed("answers 206 without saying which bytes it sends")
    return int(match[1]), None if match[3] == "*" else int(match[3])


def _total_of_416(response: httpx.Response) -> int | None:
    text = response.headers.get("content-range", "").removeprefix("bytes */")
    return int(text) if text.isdecimal() else None


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _say(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _state_path(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _read_state(part: Path) -> dict[str, Any]:
    path = _state_path(part)
    if not path.exists():
        return {}
    try:
        value = read_json(path)
    except UserError:  # only a hint: without it the download begins again
        return {}
    return value if isinstance(value, dict) else {}


def _write_state(url: str, part: Path, response: httpx.Response) -> None:
    tag = response.headers.get("etag", "")
    # A weak tag says that two answers mean the same, not that they have the same bytes.
    validator = tag if tag.startswith('"') else response.headers.get("last-modified", "")
    write_json(_state_path(part), {"schema_version": 1, "url": url, "validator": validator})


@contextmanager
def holding(part: Path) -> Iterator[BinaryIO]:
    """The part, open for reading and writing, held by this process alone."""
    part.parent.mkdir(parents=True, exist_ok=True)
    part.touch()
    with part.open("r+b") as handle:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{part} is being written by another process", fix="wait for it to end"
                ) from None
            except OSError:
                pass  # a file system without locks
        if not part.exists() or not os.path.samestat(os.fstat(handle.fileno()), part.stat()):
            # Another process finished between our opening and our locking: this handle is the
            # finished file, which must not be written to.
            raise UserError(f"{part} was finished by another process", fix="run again")
        yield handle
