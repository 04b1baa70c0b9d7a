"""Lines of YFCC100M as they are in the wild, and a slow reader of them, a line at a time."""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import unquote_plus

NAMES = """photoid uid unickname datetaken dateuploaded capturedevice title description usertags
machinetags longitude latitude accuracy pageurl downloadurl licensename licenseurl serverid farmid
secret secretoriginal ext marker""".split()  # noqa: SIM905


def key_of(url: str) -> str:
    """Every byte of the MD5 without a leading zero."""
    digest = hashlib.md5(url.encode()).digest()
    return "".join(
        "0123456789abcdef"[b // 16] * (b > 15) + "0123456789abcdef"[b % 16] for b in digest
    )


def photo(number: int = 1, **given: str) -> dict[str, str]:
    """One row's fields; those that are given differ."""
    row = {
        "photoid": str(6985418911 + number),
        "uid": f"{number}%40N00",
        "unickname": "ann+b%2E",
        "datetaken": "2012-02-16 09:56:37.0",
        "dateuploaded": "1331840483",
        "capturedevice": "Canon+PowerShot+ELPH+310+HS",
        "title": "IMG_0520",
        "description": "",
        "usertags": "key+west,a%2Cb",
        "machinetags": "",
        "longitude": "-81.804885",
        "latitude": "24.550558",
        "accuracy": "12",
        "pageurl": f"http://www.flickr.com/photos/{number}@N00/6985418911/",
        "downloadurl": f"http://farm8.staticflickr.com/7205/{6985418911 + number}_df7747990d.jpg",
        "licensename": "Attribution-NonCommercial License",
        "licenseurl": "http://creativecommons.org/licenses/by-nc/2.0/",
        "serverid": "7205",
        "farmid": "8",
        "secret": "df7747990d",
        "secretoriginal": "692d7e0a7f",
        "ext": "jpg",
        "marker": "0",
    }
    return row | given


def line_23(row: dict[str, str]) -> bytes:
    return "\t".join(row[name] for name in NAMES).encode()


def line_25(row: dict[str, str], number: int) -> bytes:
    key = row.get("hash", key_of(row["downloadurl"]))
    fields = [str(number), row["photoid"], key, *(row[name] for name in NAMES[1:])]
    return "\t".join(fields).encode()


def slow_rows(data: bytes, count: int) -> tuple[list[dict[str, Any]], list[int]]:
    """What rows say, and the numbers of malformed lines, by the plainest code there is."""
    rows, bad = [], []
    for number, raw in enumerate(data.removesuffix(b"\n").split(b"\n"), start=1):
        try:
            fields = raw.removesuffix(b"\r").decode("utf-8").split("\t")
        except UnicodeDecodeError:
            bad.append(number)
            continue
        if len(fields) != count or any("\r" in field for field in fields):
            bad.append(number)
            continue
        stated = None
        row_id = number - 1
        if count == 25:
            if not (fields[0].isascii() and fields[0].isdigit()):
                bad.append(number)
                continue
            row_id, stated = int(fields[0]), fields[2]
            fields = [fields[1], *fields[3:]]
        row = dict(zip(NAMES, fields, strict=True))
        key = key_of(row["downloadurl"])
        if (
            not (row["photoid"].isascii() and row["photoid"].isdigit())
            or not row["downloadurl"]
            or row["marker"] not in ("0", "1")
            or (stated not in (None, key) and row["marker"] == "0")
        ):
            bad.append(number)
            continue
        if row["marker"] == "1":
            continue
        rows.append(
            {
                "image_id": key,
                "row_id": row_id,
                "photo_id": row["photoid"],
                "uid": unquote_plus(row["uid"]) or None,
                "nickname": unquote_plus(row["unickname"]) or None,
                "device": unquote_plus(row["capturedevice"]) or None,
                "title": unquote_plus(row["title"]) or None,
                "description": unquote_plus(row["description"]) or None,
                "tags": [unquote_plus(tag) for tag in row["usertags"].split(",") if tag],
                "machine_tags": [unquote_plus(tag) for tag in row["machinetags"].split(",") if tag],
                "longitude": float(row["longitude"]) if row["longitude"] else None,
                "licence": row["licensename"] or None,
            }
        )
    return rows, bad
