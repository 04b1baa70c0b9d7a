"""Images in an object store: S3, Google Cloud, Azure."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

from heldout.core.errors import UserError
from heldout.core.extras import require
from heldout.data.images.source import check_id, check_size, is_image_name, no_image

STORES = ("s3", "gs", "az")
"""Schemes of the stores that are read, by the package obstore."""


class ObjectStoreSource:
    """The images below a URL such as ``s3://bucket/prefix``; an id is the path from there.

    ``ids`` saves the listing. Credentials, region and endpoint come from the environment, in the
    names that each vendor uses (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``), never from the URL.
    A store that does not answer, after several attempts, raises ``ConnectionError``: no image is
    bad for that.
    """

    def __init__(self, url: str, *, ids: Sequence[str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._ids = None if ids is None else tuple(sorted({check_id(key) for key in ids}))
        self._store: Any = None
        self._lock = threading.Lock()

    def ids(self) -> Sequence[str]:
        """All ids, sorted: those given, else those of all objects named like images."""
        if self._ids is None:
            try:
                names = self._ask(lambda store: [m["path"] for part in store.list() for m in part])
            except ConnectionError as error:
                raise UserError(str(error), fix="check the address and the network") from None
            self._ids = tuple(sorted(check_id(name) for name in names if is_image_name(name)))
        return self._ids

    def open(self, image_id: str) -> BinaryIO:
        """The image of this id, fetched whole."""
        check_id(image_id)

        def get(store: Any) -> bytes:
            found = store.get(image_id)
            check_size(image_id, found.meta["size"])
            return bytes(found.bytes())

        try:
            return io.BytesIO(self._ask(get))
        except FileNotFoundError:
            raise no_image(image_id, self.url) from None

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self.url, "_ids": self._ids}  # what holds credentials stays here

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _store=None, _lock=threading.Lock())

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """The answer of the store, which tries again by itself; its errors as ours."""
        purpose = f"reading {self.url}"
        errors = require("obstore.exceptions", extra="stores", purpose=purpose)
        try:
            with self._lock:
                if self._store is None:
                    opener = require("obstore.store", extra="stores", purpose=purpose)
                    self._store = opener.from_url(self.url)
            return question(self._store)
        except (PermissionError, errors.UnauthenticatedError, errors.PermissionDeniedError):
            raise UserError(
                f"{self.url}: access denied", fix="set its credentials in the environment"
            ) from None
        except errors.BaseError as error:
            line = str(error).strip().partition("\n")[0]
            raise ConnectionError(f"{self.url}: {line}") from None
