"""Rendering as work of the engine: a unit of shots becomes files and the facts about them.

Files are written once, straight into the layout of the set, in a folder of the job; facts are the
unit's result. A unit of an earlier run counts only if all its files are there with their hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from heldout.core.engine import Results, Unit, unit_key
from heldout.core.errors import UserError
from heldout.core.files import canonical_json, sha256_text
from heldout.curate.compose.config import ComposeParameters
from heldout.curate.compose.encode import Encoding
from heldout.curate.compose.facts import Fact, pack_facts, unpack_facts
from heldout.curate.compose.plan import in_units
from heldout.curate.compose.scene import Shot
from heldout.curate.parameters import to_dict

if TYPE_CHECKING:
    from heldout.curate.compose.further import Further
    from heldout.curate.compose.inputs import Inputs

WORK = "compose-1"
"""Name and version of the work: part of every unit's key, raised when results would change."""


class Encoder(Protocol):
    """A renderer that gives files."""

    def encoded(
        self, inputs: Inputs, shots: Sequence[Shot], encoding: Encoding
    ) -> Iterator[tuple[Shot, bytes, Mapping[str, float]]]:
        """The file of each shot's image and what was measured, in the order of ``shots``."""
        ...


def make_renderer(name: str, further: Further | None = None) -> Encoder:
    """The renderer of this name, ``exact`` or ``fast``; with further factors, the one for these."""
    if further:
        from heldout.curate.compose.finishing import FactorRenderer

        return FactorRenderer(further)
    if name == "exact":
        from heldout.curate.compose.exact import ExactRenderer

        return ExactRenderer()
    if name == "fast":
        from heldout.curate.compose.fast import FastRenderer

        return FastRenderer()
    raise UserError(f"no renderer {name!r}", fix="use exact or fast")


def warm_up(name: str, further: bool) -> None:
    """Load what a renderer needs."""
    if further:
        from heldout.curate.compose import finishing  # noqa: F401
    else:
        make_renderer(name)


def encoding_of_parameters(parameters: ComposeParameters) -> Encoding:
    """How the images of a set are encoded."""
    return Encoding(format=parameters.format, quality=parameters.quality)


def image_name(inputs: Inputs, shot: Shot) -> str:
    """The id of an image: ``<class>/<number>``."""
    return f"{inputs.cutouts[shot.foreground].class_name}/{shot.number}"


@dataclass(eq=False)
class RenderWork:
    """The work of a compose job: ``work(shots) -> facts``; files below ``folder`` if there is one.

    Threads may share it: each has a renderer of its own.
    """

    inputs: Inputs
    renderer: str
    encoding: Encoding
    folder: Path | None = None
    further: Further | None = None
    _own: threading.local = field(default_factory=threading.local, repr=False)

    def __call__(self, shots: Sequence[Shot]) -> bytes:
        """Render the shots of one unit."""
        return pack_facts(fact for _, _, fact in self.files(shots))

    def files(self, shots: Sequence[Shot]) -> Iterator[tuple[Shot, bytes, Fact]]:
        """Each shot with its file and facts; the file is written first where that is asked for."""
        if not hasattr(self._own, "renderer"):
            self._own.renderer = make_renderer(self.renderer, self.further)
        renderer: Encoder = self._own.renderer
        for shot, data, measured in renderer.encoded(self.inputs, shots, self.encoding):
            if self.folder is not None:
                _write(self._name(shot), data)
            digest = hashlib.sha256(data).hexdigest()
            yield shot, data, Fact(shot.number, digest, len(data), measured)

    def _name(self, shot: Shot) -> str:
        return f"{self.folder}/{image_name(self.inputs, shot)}{self.encoding.ending}"

    def prepare(self) -> None:
        """Make the folders that files go to."""
        if self.folder is not None:
            for name in self.inputs.class_names:
                (self.folder / name).mkdir(parents=True, exist_ok=True)

    def forget_lost(self, results: Results, units: Iterable[Unit]) -> int:
        """Remove results of an earlier run whose files are not what they say; how many."""
        lost = 0
        for unit in units:
            if self.folder is not None and results.has(unit.key) and not self._whole(results, unit):
                results.path(unit.key).unlink()
                lost += 1
        return lost

    def _whole(self, results: Results, unit: Unit) -> bool:
        facts = {fact.number: fact for fact in unpack_facts(results.read(unit.key))}
        for shot in unit.payload:
            try:
                data = Path(self._name(shot)).read_bytes()
            except OSError:
                return False
            if hashlib.sha256(data).hexdigest() != facts[shot.number].sha256:
                return False
        return True

    def __getstate__(self) -> dict[str, Any]:
        return {
            "inputs": self.inputs,
            "renderer": self.renderer,
            "encoding": self.encoding,
            "folder": self.folder,
            "further": self.further,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _write(path: str, data: bytes) -> None:
    """Write a file with few calls. It counts only once its unit's result is stored."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def plan_key(
    inputs: Inputs, parameters: ComposeParameters, seed: int, plugins: Mapping[str, str]
) -> str:
    """The hash of everything that rendered files depend on, the libraries that make them included."""
    import PIL
    from PIL import features

    values = {k: v for k, v in to_dict(parameters).items() if k not in ("preset", "layout")}
    libraries = {"pillow": PIL.__version__, "jpeg": features.version("jpg") or ""}
    if parameters.renderer == "fast" or parameters.factors:
        from importlib.metadata import PackageNotFoundError, version

        with contextlib.suppress(PackageNotFoundError):
            libraries["opencv"] = version("opencv-python-headless")
    return sha256_text(
        canonical_json(
            {
                "work": WORK,
                "inputs": inputs.key,
                "parameters": values,
                "seed": seed,
                "libraries": libraries,
                "plugins": dict(plugins),
            }
        )
    )


def render_units(shots: Sequence[Shot], key: str) -> list[Unit]:
    """The units of a plan; ``key`` is its :func:`plan_key`."""
    return [
        Unit(unit_key(WORK, plan=key, unit=place), group)
        for place, group in enumerate(in_units(shots))
    ]


def read_facts(results: Results, units: Iterable[Unit]) -> dict[int, Fact]:
    """The facts of all units by number."""
    return {fact.number: fact for unit in units for fact in unpack_facts(results.read(unit.key))}
