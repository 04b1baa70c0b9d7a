"""The manifest of a folder of cut-outs: what each file is, where it comes from, what the gate says.

::

    DIR/<class>/<name>.png         cut-outs that passed the gate, or that a person has kept
    DIR/.flagged/<class>/<name>.png  the others
    DIR/manifest.json              schema_version, method, settings, cut-outs, failures, skipped
    DIR/attributions.csv           file, licence, attribution, source of the cut-outs
    DIR/sheet-001.html             contact sheets for review
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from heldout.core.errors import BadFile
from heldout.core.files import csv_text, read_versioned_json, write_json, write_text
from heldout.curate.cutouts.cutout import Problem
from heldout.curate.cutouts.gate import Measures

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
FLAGGED = ".flagged"

Verdict = Literal["good", "flagged", "kept", "dropped"]
"""``good`` and ``flagged`` by the gate; ``kept`` and ``dropped`` by a person's review."""


@dataclass(frozen=True, kw_only=True)
class Cutout:
    """One cut-out.

    ``file``           its path below the folder of cut-outs, whether or not it is used
    ``photo``          the id of its photograph, with ``photo_sha256`` of its bytes
    ``box``            left, top, width, height of the cut-out in the upright photograph
    ``sha256``         of the PNG file; empty where nothing could be cut out
    ``mask_pixels``    visible pixels (alpha above 0)
    ``reasons``        why the gate flags it
    """

    file: str
    class_name: str
    photo: str
    photo_sha256: str
    photo_size: tuple[int, int]
    box: tuple[int, int, int, int]
    sha256: str
    mask_pixels: int
    measures: Measures
    verdict: Verdict
    reasons: tuple[str, ...]
    licence: str
    attribution: str
    source: str

    @property
    def used(self) -> bool:
        """Whether it is among the cut-outs to be used."""
        return self.verdict in ("good", "kept") and bool(self.sha256)

    @property
    def path(self) -> str:
        """Where the file is, below the folder of cut-outs."""
        return self.file if self.used else f"{FLAGGED}/{self.file}"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is known of a folder of cut-outs.

    ``method``   how objects were found: its name, settings, and the hash of weights
    ``runtime``  versions of the libraries that ran it
    """

    method: Mapping[str, Any]
    cleaning: Mapping[str, Any]
    limits: Mapping[str, Any]
    runtime: Mapping[str, str]
    cutouts: tuple[Cutout, ...]
    failures: tuple[Problem, ...] = ()
    skipped: tuple[Problem, ...] = ()

    @property
    def used(self) -> tuple[Cutout, ...]:
        """The cut-outs to be used."""
        return tuple(cutout for cutout in self.cutouts if cutout.used)

    @property
    def flagged(self) -> tuple[Cutout, ...]:
        """The cut-outs that are set aside."""
        return tuple(cutout for cutout in self.cutouts if not cutout.used)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "method": dict(self.method),
            "cleaning": dict(self.cleaning),
            "limits": dict(self.limits),
            "runtime": dict(self.runtime),
            "cutouts": [_listed(asdict(cutout)) for cutout in self.cutouts],
            "failures": [asdict(problem) for problem in self.failures],
            "skipped": [asdict(problem) for problem in self.skipped],
        }

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` and ``attributions.csv`` into the folder."""
        write_json(folder / MANIFEST, self.to_dict())
        write_text(folder / "attributions.csv", attributions(self.used))


_RETIRED = ("decontaminate", "clear_hidden")
"""Settings of cleaning in manifests of 0.1, which nobody used."""


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a folder of cut-outs."""
    path = folder / MANIFEST
    value = read_versioned_json(path, version=SCHEMA_VERSION)
    try:
        return Manifest(
            method=value["method"],
            cleaning={k: v for k, v in value["cleaning"].items() if k not in _RETIRED},
            limits=value["limits"],
            runtime=value["runtime"],
            cutouts=tuple(_cutout(entry) for entry in value["cutouts"]),
            failures=tuple(Problem(**entry) for entry in value["failures"]),
            skipped=tuple(Problem(**entry) for entry in value["skipped"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise BadFile(
            path, f"is no manifest of cut-outs ({error})", fix="make them again"
        ) from None


def attributions(cutouts: Sequence[Cutout]) -> str:
    """A CSV of file, licence, attribution, source."""
    fields = ("file", "licence", "attribution", "source")
    return csv_text(fields, [[getattr(cutout, field) for field in fields] for cutout in cutouts])


def _listed(value: Any) -> Any:
    """Tuples as lists, at every depth: what the file gives back."""
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_listed(inner) for inner in value]
    return value


def _cutout(entry: Mapping[str, Any]) -> Cutout:
    fields = dict(entry)
    fields["measures"] = Measures(**fields["measures"])
    for key in ("photo_size", "box", "reasons"):
        fields[key] = tuple(fields[key])
    return Cutout(**fields)
