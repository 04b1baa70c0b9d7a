"""A recipe under examination: builds of it, here and in other processes, kept and compared."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from heldout.core.engine import Executor
from heldout.core.errors import HeldoutError
from heldout.core.files import read_json, sha256_file, write_json
from heldout.core.plugins import load_object
from heldout.curate import parameters as parameter_values
from heldout.curate.build import run_recipe
from heldout.curate.recipe import Recipe, Sources
from heldout.curate.registry import load_recipe
from heldout.data.testset.testset import TestSet, load

NAME = "set"
_TIMEOUT = 600


@dataclass(frozen=True, kw_only=True)
class World:
    """What a build must not depend on."""

    hash_seed: int = 0
    global_seed: int = 0
    clock_shift: float = 0.0
    timezone: str = "UTC"


@dataclass(frozen=True)
class Place:
    """Where one build lies: ``testsets/set``, ``runs`` and an empty ``here`` below ``root``."""

    root: Path

    @property
    def folder(self) -> Path:
        """The folder of the test set."""
        return self.root / "testsets" / NAME

    @property
    def runs(self) -> Path:
        """The folder of resumable work."""
        return self.root / "runs"

    @property
    def here(self) -> Path:
        """The current folder of a build in a process of its own."""
        return self.root / "here"

    def files(self) -> dict[str, str]:
        """Every file of the test set with its SHA-256."""
        return {
            path.relative_to(self.folder).as_posix(): sha256_file(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
        }

    def testset(self) -> TestSet:
        """The test set as it lies there."""
        return load(self.folder)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A recipe with what it is examined on.

    ``recipe_path``, ``sources_path``  ``package.module:object``; the latter is a function without
                                       arguments that gives the sources by role
    ``scratch``                        an empty folder
    """

    recipe_path: str
    sources_path: str
    scratch: Path
    seed: int = 0
    values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def recipe(self) -> Recipe:
        """The recipe."""
        return load_recipe(self.recipe_path)

    @cached_property
    def parameters(self) -> Any:
        """The parameters it is examined with."""
        return parameter_values.from_dict(self.recipe.parameters, self.values)

    def sources(self) -> Sources:
        """The sources, made anew."""
        made: Sources = load_object(self.sources_path)()
        return made

    @cached_property
    def baseline(self) -> Place:
        """The build that all others are compared with."""
        return self.build("baseline")

    def place(self, label: str) -> Place:
        """The place of the build called ``label``."""
        return Place(self.scratch / label)

    def build(
        self,
        label: str,
        *,
        sources: Sources | None = None,
        parameters: Any = None,
        seed: int | None = None,
        executor: Executor | None = None,
    ) -> Place:
        """Build in this process; a build of that label that was killed is resumed."""
        place = self.place(label)
        run_recipe(
            self.recipe,
            self.sources() if sources is None else sources,
            folder=place.folder,
            runs=place.runs,
            parameters=self.parameters if parameters is None else parameters,
            seed=self.seed if seed is None else seed,
            name=NAME,
            executor=executor,
        )
        return place

    def child(self, label: str, *, world: World | None = None, kill: int | None = None) -> int:
        """Build in another process; the number of moments, or 0 if it was killed as asked."""
        world = World() if world is None else world
        place = self.place(label)
        place.here.mkdir(parents=True, exist_ok=True)
        request, report = place.root / "request.json", place.root / "report.json"
        write_json(
            request,
            {
                "schema_version": 1,
                "recipe": self.recipe_path,
                "sources": self.sources_path,
                "parameters": parameter_values.to_dict(self.parameters),
                "seed": self.seed,
                "name": NAME,
                "folder": str(place.folder.resolve()),
                "runs": str(place.runs.resolve()),
                "root": str(place.root.resolve()),
                "report": str(report.resolve()),
                "clock_shift": world.clock_shift,
                "global_seed": world.global_seed,
                "kill": kill,
            },
        )
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "heldout.testing.recipe_conformance.child",
                str(request.resolve()),
            ],
            cwd=place.here,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path),
                "PYTHONHASHSEED": str(world.hash_seed),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TZ": world.timezone,
            },
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )
        if kill is not None and done.returncode == -signal.SIGKILL:
            return 0
        if done.returncode:
            lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
            raise HeldoutError(f"a build in another process failed: {lines[-1]}")
        return int(read_json(report)["moments"])


def first_difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """The first file in which two builds differ, in words; empty when they are equal."""
    for file in sorted(expected.keys() | found.keys()):
        if file not in found:
            return f"{file} is missing"
        if file not in expected:
            return f"{file} is new"
        if expected[file] != found[file]:
            return f"{file} has other bytes"
    return ""
