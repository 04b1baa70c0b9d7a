"""A compose configuration as a source of images: rendered when they are asked for, never written.

The encoded bytes are those that a build writes, so ids, hashes and predictions are the same.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from heldout.core.engine import Job, Threads, no_progress
from heldout.core.errors import HeldoutError
from heldout.core.workspace import Workspace, slug
from heldout.curate.build import assemble
from heldout.curate.compose.config import Request, load_request
from heldout.curate.compose.facts import Fact, pack_facts
from heldout.curate.compose.folders import gather_backgrounds, gather_foregrounds
from heldout.curate.compose.recipe import ComposeRecipe, Prepared, describe, prepare
from heldout.curate.compose.rendering import (
    RenderWork,
    encoding_of_parameters,
    image_name,
    read_facts,
    render_units,
)
from heldout.curate.compose.scene import Shot
from heldout.curate.recipe import BuildContext, Sources
from heldout.data.images.sources import no_image

if TYPE_CHECKING:
    from heldout.data.testset.testset import TestSet

MEMORY = 256 << 20
"""Bytes of encoded images that a source keeps; others are rendered again when they are opened."""


class ComposeSource:
    """The images of a plan, by id. Threads may share it; it may be sent to another process."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._work = _StreamWork(
            RenderWork(
                prepared.inputs,
                prepared.parameters.renderer,
                encoding_of_parameters(prepared.parameters),
                further=prepared.further,
            )
        )
        self._shots = {image_name(prepared.inputs, shot): shot for shot in prepared.plan.shots}

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(sorted(self._shots))

    def open(self, image_id: str) -> BinaryIO:
        """The encoded image of this id."""
        if image_id not in self._shots:
            raise no_image(image_id, "the compose configuration")
        return io.BytesIO(self._work.one(self._shots[image_id]))

    def facts(self, runs: Path) -> dict[int, Fact]:
        """Hashes and measured columns of all images, rendered once and remembered in ``runs``."""
        units = render_units(self._prepared.plan.shots, self._prepared.key)
        job = Job(name=f"{self._prepared.job}-facts", work=self._work)
        results = BuildContext(runs, Threads(), no_progress).complete(job, units)
        return read_facts(results, units)


class _StreamWork:
    """Work that writes no files; what it encoded is kept for who opens it next, within a bound."""

    def __init__(self, work: RenderWork) -> None:
        self.work = work
        self._kept: dict[int, bytes] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def __call__(self, shots: Sequence[Shot]) -> bytes:
        """Render the shots of one unit, and keep their files."""
        facts = []
        for shot, data, fact in self.work.files(shots):
            facts.append(fact)
            with self._lock:
                if self._bytes + len(data) <= MEMORY and shot.number not in self._kept:
                    self._kept[shot.number] = data
                    self._bytes += len(data)
        return pack_facts(facts)

    def one(self, shot: Shot) -> bytes:
        """The file of one image."""
        kept = self._kept.get(shot.number)
        if kept is not None:
            return kept
        for _, data, _ in self.work.files([shot]):
            return data
        raise HeldoutError(f"image {shot.number} was not rendered")

    def __reduce__(self) -> tuple[Any, ...]:
        return _StreamWork, (self.work,)


def sources_of(request: Request) -> tuple[Sources, tuple[str, ...]]:
    """The pools of a request's folders, and what the user should know about them."""
    foregrounds = gather_foregrounds(
        request.foregrounds,
        labels=request.labels,
        classes=request.classes,
        licence=request.foregrounds_licence,
        attributions=request.foregrounds_attributions,
    )
    backgrounds = gather_backgrounds(
        request.backgrounds,
        licence=request.backgrounds_licence,
        attributions=request.backgrounds_attributions,
    )
    sources: Sources = {"foregrounds": foregrounds.pool, "backgrounds": backgrounds.pool}
    return sources, (*foregrounds.notes, *backgrounds.notes)


def compose_testset(request: Request, *, runs: Path) -> TestSet:
    """The test set of a request without files: its images are rendered when they are opened.

    Its tables are those of the set that a build writes. File hashes and measured columns are only
    known after rendering, so every image is rendered once here; ``runs`` remembers the outcome, so
    that the same request again costs nothing.
    """
    sources, _ = sources_of(request)
    prepared = prepare(sources, request.parameters, seed=request.seed)
    source = ComposeSource(prepared)
    facts = source.facts(runs)
    built = describe(prepared, facts, sources)
    made = assemble(
        ComposeRecipe(),
        sources,
        request.parameters,
        request.seed,
        built,
        name=slug(request.title),
        folder=Path(),
    )
    return replace(made, card=made.card.updated(images_root=None), source=source)


_OPEN: dict[str, TestSet] = {}
_LOCK = threading.Lock()


def open_testset(workspace: Workspace, text: str) -> TestSet:
    """The test set that ``compose:FILE.toml`` names; a file that did not change is opened once."""
    path = Path(text)
    request = load_request(path)
    stamp = hashlib.sha256(repr((path.resolve(), workspace.root.resolve(), request)).encode())
    key = f"{stamp.hexdigest()}-{_stamps(request)}"
    with _LOCK:
        if key not in _OPEN:
            found = compose_testset(request, runs=workspace.runs)
            _OPEN.clear()  # one at a time: a set keeps its images in memory
            _OPEN[key] = found
        return _OPEN[key]


def _stamps(request: Request) -> str:
    """What the input folders hold, by name, size and time of change."""
    rows = [
        (path.as_posix(), path.stat().st_size, path.stat().st_mtime_ns)
        for folder in (request.foregrounds, request.backgrounds)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]
    return hashlib.sha256(repr(rows).encode()).hexdigest()
