"""Searching Flickr: ``flickr.photos.search`` page by page, and which photos are kept."""

from __future__ import annotations

import json
import re
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import msgspec

from heldout.core.engine import Unit, unit_key
from heldout.core.errors import UserError
from heldout.core.request import RequestError
from heldout.core.web import BadAddress, Unanswered, WebClient, masked
from heldout.curate.collect.queries import Query
from heldout.data.published.imagenetv2_search import (
    FLICKR,
    SearchRecord,
    candidate_id,
    is_web_address,
)
from heldout.data.published.requests import FLICKR_LICENCES, FlickrRequest, flickr_licences

KEY = "FLICKR_API_KEY"
LARGEST_ANSWER = 16 << 20
_PAGE = 500  # photos of a page, at most
_RESULTS = 4_000  # results of a query that Flickr lists; further pages repeat them
_WORK = "flickr-search-1"

# ImageNetV2's order of preference; Flickr also calls the sizes b and - "l" and "m".
SIZES = ("url_o", "url_k", "url_h", "url_b", "url_l", "url_c", "url_z", "url_-", "url_m")
EXTRAS = ("license", "owner_name", "date_upload", "date_taken", "o_dims", "media", *SIZES)

_PASSING = frozenset({0, 10, 105, 106, 201})
"""Codes of failures that may pass: of the service, not of what was asked."""
_OF_THE_KEY = frozenset({95, 96, 97, 98, 99, 100, 111, 112, 116})
"""Codes that every further request would get too."""
_BEYOND_THE_END = 20
_TAKEN = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")


class FlickrRefuses(RequestError):
    """What no further request would change: the key, or the address."""


class _Answer(msgspec.Struct):
    """What ``flickr.photos.search`` answers; fields that are not needed are left out."""

    page: int
    pages: int
    total: int = 0
    photo: list[dict[str, Any]] = []


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What one query found: the result of its unit.

    ``total``     photos that Flickr says it has
    ``examined``  photos that were looked at, in Flickr's order, until enough were kept
    ``rejected``  reason -> photos that were looked at and not kept
    """

    total: int
    examined: int
    records: list[SearchRecord]
    rejected: dict[str, int]


@dataclass
class FlickrSearch:
    """The work of a unit: one query, page by page.

    ``client``  asks the named address; it waits and tries again as its ``patience`` says
    ``key``     of the API: it goes into requests and nowhere else
    ``hourly``  requests that a key may send in an hour

    Three queries without an answer, one after another, end the run: the service is down.
    """

    request: FlickrRequest
    client: WebClient
    key: str
    hourly: int = 3_600
    _asked: deque[float] = field(default_factory=deque)
    _unanswered: int = 0

    def __call__(self, query: Query) -> bytes:
        """The photos of one query that are kept, as JSON."""
        found = msgspec.to_builtins(self.find(query))
        return json.dumps(found, ensure_ascii=False).encode()

    def find(self, query: Query) -> Found:
        """The first photos that fit, at most as many as the query asks for."""
        per_page = page_size(query)
        kept: dict[str, SearchRecord] = {}
        rejected: Counter[str] = Counter()
        total = examined = page = 0
        while True:
            page += 1
            answer = self._page(query, page, per_page)
            total = total or answer.total
            for photo in answer.photo:
                if len(kept) == query.images:
                    break
                examined += 1
                record, reason = self._judged(photo, query)
                if record is None:
                    rejected[reason] += 1
                elif record.id_search_engine in kept:  # lists shift while they are read
                    rejected["repeated"] += 1
                else:
                    kept[record.id_search_engine] = record
            at_end = page >= min(answer.pages, _RESULTS // per_page) or not answer.photo
            if at_end or len(kept) == query.images:
                return Found(
                    total=total,
                    examined=examined,
                    records=list(kept.values()),
                    rejected=dict(sorted(rejected.items())),
                )

    def _page(self, query: Query, page: int, per_page: int) -> _Answer:
        """One page of results, after as many attempts as the client's patience has."""
        asked = {**parameters(self.request, query, page, per_page), "api_key": self.key}
        address = f"{self.request.endpoint}?{urlencode(asked)}"
        try:
            answer = self.client.asked(address, self._read)
        except BadAddress as error:
            raise FlickrRefuses(
                f"{masked(self.request.endpoint)} {error}", fix="check {endpoint}"
            ) from None
        except Unanswered as error:
            self._unanswered += 1
            what = f"the search for {query.term!r} got no answer: {self._hidden(str(error))}"
            if self._unanswered >= 3:
                raise FlickrRefuses(
                    f"{what}; nor did two before it", fix="run the same command later to resume"
                ) from None
            raise UserError(what, fix="run the same command again to resume") from None
        self._unanswered = 0
        return answer

    def _read(self, status: int, data: bytes) -> _Answer:
        """The page in an answer; what may pass is tried again."""
        self._keep_pace()
        if status != 200:
            raise BadAddress(f"answers {status}")
        try:
            value = json.loads(data)
            if value["stat"] == "ok":
                return msgspec.convert(value["photos"], _Answer, strict=False)
            code, said = int(value["code"]), self._hidden(str(value.get("message", "")))
        except (ValueError, TypeError, KeyError, RecursionError):  # cut off, or a page for people
            raise Unanswered("sends what is not a page of photos") from None
        if code == _BEYOND_THE_END:
            return _Answer(page=0, pages=0)
        if code in _PASSING:
            raise Unanswered(f"says {said!r} (code {code})")
        if code in _OF_THE_KEY:
            raise FlickrRefuses(f"Flickr says {said!r} (code {code})", fix=f"check {KEY}")
        raise UserError(f"Flickr says {said!r} (code {code})", fix="change the search term")

    def _hidden(self, text: str) -> str:
        """What a server said, short and without the key."""
        return " ".join(text.replace(self.key, "***").split())[:200]

    def _keep_pace(self) -> None:
        """Wait where an hour would have more requests than a key may send."""
        now = time.monotonic()
        self._asked.append(now)
        if len(self._asked) == self.hourly:
            self.client.patience.sleep(max(0.0, self._asked.popleft() + 3600 - now))

    def _judged(self, photo: Mapping[str, Any], query: Query) -> tuple[SearchRecord | None, str]:
        """A photo as a record, or why it is not kept: the first reason that holds."""
        request, identity = self.request, str(photo.get("id", ""))
        uploaded = _moment(photo.get("dateupload"))
        if not (identity.isascii() and identity.isdigit()) or uploaded is None:
            return None, "malformed"
        if photo.get("media", "photo") != "photo":
            return None, "no_photo"
        size = next((s for s in SIZES if is_web_address(photo.get(s))), "")
        if not size:
            return None, "no_address"
        number = str(photo.get("license", ""))
        if request.licences and number not in flickr_licences(request.licences):
            return None, "licence"
        taken = str(photo.get("datetaken", ""))
        if not _TAKEN.fullmatch(taken) or str(photo.get("datetakenunknown", 0)) == "1":
            taken = ""  # Flickr then gives the day of the upload
        first, last = request.window("taken")
        after, before = request.window("uploaded")
        record = SearchRecord(
            id_ours=candidate_id(identity),
            id_search_engine=identity,
            url=str(photo[size]),
            url_type=size,
            wnid=query.class_id,
            search_key=query.term,
            search_engine=FLICKR,
            date_taken=taken,
            date_upload_search_engine=uploaded,
            width=_pixels(photo.get(f"width_{size[4:]}")),
            height=_pixels(photo.get(f"height_{size[4:]}")),
            max_taken_date=last,
            max_uploaded_date=before,
            min_taken_date=first,
            min_uploaded_date=after,
            search_sort=request.sort,
            max_images=request.per_class,
            licence=FLICKR_LICENCES.get(number, f"Flickr licence {number}" if number else ""),
            owner=_text(photo.get("owner", "")),
            owner_name=_text(photo.get("ownername", "")),
        )
        outside = record.outside_windows()
        return (None, outside[0]) if outside else (record, "")


def page_size(query: Query) -> int:
    """Photos per page: about what is wanted, so that most queries are one request."""
    return min(_PAGE, max(100, query.images))


def parameters(request: FlickrRequest, query: Query, page: int, per_page: int) -> dict[str, str]:
    """The arguments of ``flickr.photos.search``, without the key.

    Flickr ignores names that it does not know: ``min_uploaded_date`` is none, and asking for it
    left a tenth of ImageNetV2's candidates outside their window.
    """
    found = {
        "method": "flickr.photos.search",
        "format": "json",
        "nojsoncallback": "1",
        "text": query.term,
        "sort": request.sort,
        "media": "photos",
        "extras": ",".join(EXTRAS),
        "per_page": str(per_page),
        "page": str(page),
    }
    if request.licences:
        found["license"] = ",".join(flickr_licences(request.licences))
    first, last = request.window("taken")
    if first:
        found |= {"min_taken_date": f"{first} 00:00:00", "max_taken_date": f"{last} 23:59:59"}
    first, last = request.window("uploaded")
    if first:
        found["min_upload_date"] = str(_seconds(f"{first}T00:00:00+00:00"))
        found["max_upload_date"] = str(_seconds(f"{last}T23:59:59+00:00"))
    return found


def units(request: FlickrRequest, asked: list[Query]) -> list[Unit]:
    """One unit per class and term; its key is everything that is asked, without the API's key."""
    return [
        Unit(
            unit_key(
                _WORK,
                endpoint=masked(request.endpoint),
                class_id=query.class_id,
                images=query.images,
                per_class=request.per_class,
                parameters=parameters(request, query, 1, page_size(query)),
            ),
            query,
        )
        for query in asked
    ]


def _seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def _moment(seconds: object) -> str | None:
    """A time as Flickr gives it, in seconds, as a text in UTC; None for anything else."""
    try:
        moment = datetime.fromtimestamp(int(str(seconds)), UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def _text(value: object) -> str:
    """A text on one line; half of a surrogate pair, which JSON can hold, cannot be written."""
    return " ".join(str(value).encode("utf-8", "replace").decode().split())


def _pixels(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else None
