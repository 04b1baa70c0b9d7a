"""Building a composed set from a request: to a folder, or only as far as what it would be."""

from __future__ import annotations

import math
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from heldout.core.engine import Executor, Processes, Progress, no_progress
from heldout.core.engine.executors import worker_count
from heldout.core.errors import ExistsError
from heldout.core.files import is_unfinished
from heldout.core.workspace import slug
from heldout.curate.build import run_recipe
from heldout.curate.compose.config import ComposeParameters, Request
from heldout.curate.compose.further import Further
from heldout.curate.compose.plan import factor_value, in_units
from heldout.curate.compose.recipe import Prepared, notes_of, plugin_notes, prepare, recipe, varied
from heldout.curate.compose.rendering import RenderWork, encoding_of_parameters, warm_up
from heldout.curate.compose.source import sources_of
from heldout.curate.parameters import to_dict
from heldout.curate.recipe import Sources
from heldout.data.testset.card import Card
from heldout.data.testset.testset import TestSet, load

WORTH_PROCESSES = 400
"""Sets of fewer candidates than this are rendered here: worker processes take a second to start."""
_SAMPLED_UNITS, _SAMPLED_IMAGES = 5, 32


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A set that was built, and what the user should know.

    ``unchanged``  whether it was there already
    """

    testset: TestSet
    notes: tuple[str, ...]
    unchanged: bool = False


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What a request would give, before anything is rendered.

    ``counts``   candidates and images, in all and after each reason to drop some
    ``values``   images by value, for each factor that is varied
    ``bytes``    of all files, and ``seconds`` of one processor: from a sample of images
    """

    counts: Mapping[str, int]
    values: Mapping[str, Mapping[str, int]]
    classes: Mapping[str, int]
    bytes: int
    seconds: float
    notes: tuple[str, ...]


def build_compose(
    request: Request,
    folder: Path,
    *,
    runs: Path,
    workers: int | None = None,
    progress: Progress = no_progress,
    replace: bool = False,
) -> Composed:
    """Build the set of a request in ``folder``; the same request again changes nothing.

    ``workers``  processes; all processors by default. The set is the same for any number.

    A build that was ended goes on where it was; its work in ``runs`` is removed when it is done.
    """
    _check_free(folder, replace=replace)
    known = (folder / "card.json").is_file() and not replace
    with _started(workers, request, needed=not known) as executor:
        sources, notes = sources_of(request)
        parameters = request.parameters
        if known and _is_there(folder, sources, parameters, request.seed):
            made = load(folder)
            return Composed(testset=made, notes=(*notes, *made.card.notes), unchanged=True)
        if known:
            _check_same(folder, parameters, request.seed)
        _sweep(folder)
        before = {path.name for path in runs.glob("compose-*")}
        made = run_recipe(
            recipe,
            sources,
            folder=folder,
            runs=runs,
            parameters=parameters,
            seed=request.seed,
            name=slug(folder.resolve().name),
            executor=executor,
            progress=progress,
            replace=replace,
        )
    _clean(runs, before)
    return Composed(testset=made, notes=(*notes, *made.card.notes))


def outlook(request: Request) -> Outlook:
    """What a request would give: everything is checked and counted, a few images are rendered."""
    sources, notes = sources_of(request)
    prepared = prepare(sources, request.parameters, seed=request.seed)
    size, seconds = _sampled(prepared)
    plan = prepared.plan
    names = [prepared.inputs.cutouts[shot.foreground].class_name for shot in plan.shots]
    return Outlook(
        counts={
            "objects": len(prepared.inputs.cutouts),
            "backgrounds": len(prepared.inputs.backgrounds),
            "candidates": plan.candidates,
            "too_small": plan.too_small,
            "outside": plan.empty,
            "filtered": plan.filtered,
            "images": len(plan),
        },
        values={
            key: dict(
                Counter(
                    value if isinstance(value, str) else f"{value:g}"
                    for value in (factor_value(shot, key, prepared.further) for shot in plan.shots)
                )
            )
            for key in varied(prepared)
        },
        classes=dict(sorted(Counter(names).items())),
        bytes=size,
        seconds=seconds,
        notes=(*notes, *notes_of(prepared)),
    )


def _sampled(prepared: Prepared) -> tuple[int, float]:
    """Bytes and processor seconds of all images, from the beginnings of a few units."""
    work = RenderWork(
        prepared.inputs,
        prepared.parameters.renderer,
        encoding_of_parameters(prepared.parameters),
        further=prepared.further,
    )
    units = list(in_units(prepared.plan.shots))
    chosen = units[:: max(1, math.ceil(len(units) / _SAMPLED_UNITS))]
    work(chosen[0][:1])  # what is loaded once is no part of the time of an image
    began = time.process_time()
    size = count = 0
    for unit in chosen:
        for _, data, _ in work.files(unit[:_SAMPLED_IMAGES]):
            size += len(data)
            count += 1
    spent = time.process_time() - began
    images = len(prepared.plan)
    return round(size / count * images), spent / count * images


@contextmanager
def _started(workers: int | None, request: Request, *, needed: bool) -> Iterator[Executor | None]:
    """Worker processes, if they are worth it: they load while the set is planned."""
    count = worker_count(workers)
    if count == 1 or (workers is None and _candidates(request) < WORTH_PROCESSES):
        yield None
        return
    processes = Processes(count)
    if not needed:
        yield processes
        return
    parameters = request.parameters
    with processes.started(partial(warm_up, parameters.renderer, bool(parameters.factors))):
        yield processes


def _candidates(request: Request) -> int:
    """About how many candidates there are, before inputs are looked at."""
    parameters = request.parameters
    files = [path for path in request.foregrounds.glob("*/*") if not path.name.startswith(".")]
    count = len(files) * parameters.backgrounds_per_object
    for values in (parameters.x, parameters.y, parameters.size, parameters.rotation):
        count *= len(values)
    for _, further in parameters.further:
        count *= len(further)
    return count * len(parameters.resolution)


def _is_there(folder: Path, sources: Sources, parameters: ComposeParameters, seed: int) -> bool:
    """Whether the folder holds the set of this very request."""
    if not (folder / "card.json").is_file():
        return False
    card = Card.read(folder / "card.json")
    parents = {parent.get("relation"): parent.get("content_hash") for parent in card.parents}
    return (
        _recorded(card) == _asked(parameters, seed)
        and all(parents.get(role) == source.content_hash for role, source in sources.items())
        and set(plugin_notes(Further.of(parameters))) <= set(card.notes)
    )


def _check_same(folder: Path, parameters: ComposeParameters, seed: int) -> None:
    """Refuse to render a set that could not be written over the one that is there."""
    if _recorded(Card.read(folder / "card.json")) != _asked(parameters, seed):
        raise ExistsError(
            f"{folder} holds another test set", fix="name another folder, or use --replace"
        )


def _recorded(card: Card) -> dict[str, Any]:
    """How the set of a card was made."""
    made = dict(card.recipe or {})
    # Cards of 0.1 name PNG twice: as the format, and as ``lossless``.
    made["parameters"] = {k: v for k, v in made.get("parameters", {}).items() if k != "lossless"}
    return made


def _asked(parameters: ComposeParameters, seed: int) -> dict[str, Any]:
    """What the card of the set says of how it was made."""
    return {
        "name": recipe.name,
        "version": recipe.version,
        "parameters": to_dict(parameters),
        "seed": seed,
    }


def _check_free(folder: Path, *, replace: bool) -> None:
    """Refuse a folder that the set could not be written to, before any work."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ExistsError(f"{place} is a file", fix="name another folder")
    if folder.is_dir() and not (folder / "card.json").exists() and any(folder.iterdir()):
        raise ExistsError(f"{folder} exists and is no test set", fix="name another folder")
    slug(folder.resolve().name)


def _sweep(folder: Path) -> None:
    """Remove what a build that was killed while it wrote this folder left beside it."""
    folder = folder.resolve()
    for path in sorted(folder.parent.iterdir()) if folder.parent.is_dir() else ():
        if is_unfinished(path, folder):
            shutil.rmtree(path, ignore_errors=True)


def _clean(runs: Path, before: set[str]) -> None:
    """Remove the work of a build that is done."""
    for path in runs.glob("compose-*"):
        files = path / "files"
        if files.is_dir() and not any(files.iterdir()):  # moved into the set
            shutil.rmtree(path, ignore_errors=True)
    if runs.is_dir() and not before and not any(runs.iterdir()):
        runs.rmdir()
