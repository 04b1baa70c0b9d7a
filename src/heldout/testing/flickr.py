"""A loopback server that speaks Flickr's protocol, its errors and throttling included.

::

    with FlickrServer([photo(1, "a black cat"), photo(2, "a cat on a mat")], key="mine") as server:
        ...  # ask server.endpoint
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

_PAGE = 500
_RESULTS = 4_000
_ALWAYS = ("id", "owner", "secret", "server", "farm", "title", "ispublic", "isfriend", "isfamily")
_OF_EXTRAS = {
    "license": ("license",),
    "owner_name": ("ownername",),
    "date_upload": ("dateupload",),
    "date_taken": ("datetaken", "datetakengranularity", "datetakenunknown"),
    "o_dims": ("o_width", "o_height"),
    "media": ("media", "media_status"),
}


def photo(
    number: int,
    title: str,
    *,
    taken: str = "2013-01-01 12:00:00",
    uploaded: str = "2013-01-02 12:00:00",
    licence: int = 4,
    owner: str = "12345678@N00",
    owner_name: str = "A. Photographer",
    sizes: Mapping[str, tuple[int, int]] | None = None,
    address: str = "https://live.staticflickr.com/{number}_{size}.jpg",
    **further: Any,
) -> dict[str, Any]:
    """A photo as Flickr's JSON has it; its words are those of its title.

    ``sizes``    the sizes that it has (``o``, ``k``, ``z``, …) with width and height; the medium
                 one and the original by default
    ``further``  fields that replace others
    """
    found: dict[str, Any] = {
        "id": str(number),
        "owner": owner,
        "ownername": owner_name,
        "secret": f"{number:010x}",
        "server": "65535",
        "farm": 66,
        "title": title,
        "ispublic": 1,
        "isfriend": 0,
        "isfamily": 0,
        "license": str(licence),
        "dateupload": str(_seconds(uploaded)),
        "datetaken": taken,
        "datetakengranularity": 0,
        "datetakenunknown": "0",
        "media": "photo",
        "media_status": "ready",
    }
    for size, (width, height) in (sizes or {"m": (500, 375), "o": (1600, 1200)}).items():
        found[f"url_{size}"] = address.format(number=number, size=size)
        found[f"width_{size}"], found[f"height_{size}"] = width, height
    return found | further


Fault = Callable[[BaseHTTPRequestHandler], None]


class FlickrServer:
    """Answers ``flickr.photos.search`` at :attr:`endpoint`, on a port of its own.

    ``key``      the key that it takes; another gets error 100
    ``faults``   what the next requests get instead, one after another: see :func:`fails`,
                 :func:`answers`
    ``loose``    it lists photos whatever windows and licences are asked for
    ``asked``    the arguments of all requests so far

    As Flickr does, it ignores arguments that it does not know, leaves out of a photo what ``extras``
    does not name, gives at most 500 photos per page, and repeats the last page after 4,000.
    """

    def __init__(
        self,
        photos: Iterable[Mapping[str, Any]],
        *,
        key: str = "key",
        faults: Sequence[Fault | None] = (),
        loose: bool = False,
    ) -> None:
        self.photos, self.key, self.loose = list(photos), key, loose
        self.faults = list(faults)
        self.asked: list[dict[str, str]] = []
        self._lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer._answer(self)

            def log_message(self, *args: Any) -> None:
                """Nothing: addresses hold keys."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        """Where it is asked."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/services/rest/"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def _answer(self, to: BaseHTTPRequestHandler) -> None:
        query = {k: v[-1] for k, v in parse_qs(urlsplit(to.path).query).items()}
        with self._lock:
            self.asked.append(query)
            fault = self.faults.pop(0) if self.faults else None
        if fault is not None:
            fault(to)
        else:
            send(to, json.dumps(self._said(query)).encode())

    def _said(self, query: Mapping[str, str]) -> dict[str, Any]:
        if query.get("api_key") != self.key:
            return _failure(100, "Invalid API Key (Key has invalid format)")
        if query.get("method") != "flickr.photos.search":
            return _failure(112, f'Method "{query.get("method")}" not found')
        if query.get("format") != "json" or query.get("nojsoncallback") != "1":
            return _failure(111, f'Format "{query.get("format")}" not found')
        if not query.get("text", "").strip():
            return _failure(3, "Parameterless searches have been disabled.")
        found = [each for each in self.photos if self._fits(each, query)]
        by = {"posted": "dateupload", "taken": "datetaken"}
        order = query.get("sort", "date-posted-desc").split("-")
        if order[0] == "date":
            found.sort(key=lambda each: str(each[by[order[1]]]), reverse=order[2] == "desc")
        per_page = min(_PAGE, int(query.get("per_page", 100)))
        pages = -(-len(found) // per_page)
        page = min(int(query.get("page", 1)), max(1, min(pages, _RESULTS // per_page)))
        shown = {*_ALWAYS}
        for extra in query.get("extras", "").split(","):
            size = extra.removeprefix("url_")
            shown |= {*_OF_EXTRAS.get(extra, ())}
            shown |= {f"url_{size}", f"width_{size}", f"height_{size}"} if size != extra else set()
        listed = found[(page - 1) * per_page : page * per_page]
        return {
            "photos": {
                "page": page,
                "pages": pages,
                "perpage": per_page,
                "total": len(found),
                "photo": [{k: v for k, v in each.items() if k in shown} for each in listed],
            },
            "stat": "ok",
        }

    def _fits(self, each: Mapping[str, Any], query: Mapping[str, str]) -> bool:
        words = str(each["title"]).lower().split()
        if not all(word in words for word in query["text"].lower().split()):
            return False
        if self.loose:
            return True
        licences = query.get("license", "").split(",")
        return (
            (licences == [""] or str(each["license"]) in licences)
            and query.get("min_taken_date", "") <= each["datetaken"]
            and each["datetaken"] <= query.get("max_taken_date", "9")
            and int(query.get("min_upload_date", 0)) <= int(each["dateupload"])
            and int(each["dateupload"]) <= int(query.get("max_upload_date", 1 << 40))
        )


def _failure(code: int, message: str) -> dict[str, Any]:
    return {"stat": "fail", "code": code, "message": message}


def fails(code: int, message: str) -> Fault:
    """A failure of the protocol, such as 105, "Service currently unavailable"; its status is 200."""
    return lambda to: send(to, json.dumps(_failure(code, message)).encode())


def answers(status: int, body: bytes = b"", *, cut: int | None = None, **headers: str) -> Fault:
    """Any answer; ``cut`` ends it after so many bytes of the body that it promises."""

    def answer(to: BaseHTTPRequestHandler) -> None:
        send(to, body, status=status, cut=cut, **headers)

    return answer


def send(
    to: BaseHTTPRequestHandler,
    body: bytes,
    *,
    status: int = 200,
    cut: int | None = None,
    **headers: str,
) -> None:
    """Send an answer; names of headers with underscores for hyphens."""
    to.send_response(status)
    to.send_header("Content-Type", "application/json; charset=utf-8")
    to.send_header("Content-Length", str(len(body)))
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    if cut is not None:
        to.send_header("Connection", "close")
        to.close_connection = True
    to.end_headers()
    to.wfile.write(body[:cut])


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
