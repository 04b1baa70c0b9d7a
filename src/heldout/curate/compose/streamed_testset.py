"""A compose configuration as a test set: images rendered when they are asked for, never written.

The encoded bytes are those that a build writes, so ids, hashes and predictions are the same.
"""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from heldout.core.engine import Threads
from heldout.core.workspace import Workspace, slug
from heldout.curate.build import assemble
from heldout.curate.compose.build import (
    RenderedFile,
    RenderWork,
    describe,
    gather,
    pack,
    plan_set,
    recipe,
    render_all,
)
from heldout.curate.compose.plan import ImagePlan, Plan
from heldout.curate.compose.requests import ComposeRequest, load_request
from heldout.curate.recipe import BuildContext
from heldout.data.images.sources import no_image
from heldout.data.testset.testset import TestSet

MEMORY = 256 << 20
"""Bytes of encoded images that a source keeps; others are rendered again when they are opened."""


class ComposeSource:
    """The images of a plan, by id. Threads may share it; it may be sent to another process."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._work = _StreamWork(RenderWork(plan.inputs, plan.parameters, plan.factors))
        self._shots = {plan.image_id(shot): shot for shot in plan.shots}

    def ids(self) -> Sequence[str]:
        """All ids, sorted."""
        return tuple(sorted(self._shots))

    def open(self, image_id: str) -> BinaryIO:
        """The encoded image of this id."""
        if image_id not in self._shots:
            raise no_image(image_id, "the compose configuration")
        shot = self._shots[image_id]
        if shot.number not in self._work.kept:
            ((_, data, _),) = self._work.work.files([shot])
            return io.BytesIO(data)
        return io.BytesIO(self._work.kept[shot.number])

    def facts(self, runs: Path) -> list[RenderedFile]:
        """Hashes and measured columns of all images, rendered once and remembered in ``runs``."""
        job = f"compose-{self._plan.key[:12]}-facts"
        return render_all(self._plan, BuildContext(runs, Threads()), job, self._work)


class _StreamWork:
    """Work that writes no files; what it encoded is kept for who opens it next, within a bound."""

    def __init__(self, work: RenderWork) -> None:
        self.work = work
        self.kept: dict[int, bytes] = {}
        self._left = MEMORY
        self._lock = threading.Lock()

    def __call__(self, shots: Sequence[ImagePlan]) -> bytes:
        """Render the shots of one unit, and keep their files."""
        facts = []
        for shot, data, fact in self.work.files(shots):
            facts.append(fact)
            with self._lock:
                if len(data) <= self._left and shot.number not in self.kept:
                    self.kept[shot.number] = data
                    self._left -= len(data)
        return pack(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        return _StreamWork, (self.work,)


def compose_testset(request: ComposeRequest, *, runs: Path) -> TestSet:
    """The test set of a request without files: its images are rendered when they are opened.

    Its tables are those of the set that a build writes. File hashes and measured columns are only
    known after rendering, so every image is rendered once here; ``runs`` remembers the outcome, so
    that the same request again costs nothing.
    """
    sources, _ = gather(request)
    plan = plan_set(sources, request, seed=request.seed)
    source = ComposeSource(plan)
    built = describe(plan, sources, source.facts(runs))
    name = slug(request.title)
    chosen = (request, request.seed)
    made = assemble(recipe, sources, *chosen, built, name=name, folder=Path())
    return replace(made, card=made.card.updated(images_root=None), source=source)


_OPEN: dict[str, TestSet] = {}
_LOCK = threading.Lock()


def open_testset(workspace: Workspace, text: str) -> TestSet:
    """The test set that ``compose:FILE.toml`` names; a file that did not change is opened once."""
    path = Path(text)
    request = load_request(path)
    inputs = [
        (file.as_posix(), file.stat().st_size, file.stat().st_mtime_ns)
        for folder in (request.foregrounds, request.backgrounds)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]
    stamp = repr((path.resolve(), workspace.root.resolve(), request, inputs))
    key = hashlib.sha256(stamp.encode()).hexdigest()
    with _LOCK:
        if key not in _OPEN:
            found = compose_testset(request, runs=workspace.runs)
            _OPEN.clear()  # one at a time: a set keeps its images in memory
            _OPEN[key] = found
        return _OPEN[key]
