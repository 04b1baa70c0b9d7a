"""The recipe ``compose``: cut-outs on backgrounds over a grid of factors.

(SI-SCORE: Djolonga et al., "On robustness and transferability of convolutional neural networks",
CVPR 2021.)

Rendering is work of the engine: a unit of shots becomes files and the facts about them. Files are
written once, straight into the layout of the set, in a folder of the job; facts are the unit's
result. A unit of an earlier run counts only if all its files are there with their hashes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from heldout.core.engine import (
    Executor,
    Job,
    JobResults,
    Processes,
    Progress,
    Tick,
    Unit,
    no_progress,
    unit_key,
)
from heldout.core.engine.executors import worker_count
from heldout.core.errors import ExistsError, HeldoutError, UserError
from heldout.core.files import csv_cells, held
from heldout.core.request import make
from heldout.core.workspace import slug
from heldout.curate.build import run_recipe
from heldout.curate.compose.inputs import Inputs, gather_backgrounds, gather_foregrounds, inputs_of
from heldout.curate.compose.plan import WORK, ImagePlan, Plan, Value, in_units, make_plan
from heldout.curate.compose.render import Encoding, Renderer
from heldout.curate.compose.requests import ComposeParameters, ComposeRequest, folded
from heldout.curate.recipe import (
    BuildContext,
    Recipe,
    RecipeResult,
    Rendered,
    Sources,
    TruthTable,
    pool_in,
)
from heldout.data.labels.label_space import LabelSpace
from heldout.data.labels.siscore import CITATION, SUSPECT, siscore_names
from heldout.data.testset.card import Card
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table
from heldout.data.testset.testset import TestSet, load

if TYPE_CHECKING:
    from heldout.curate.compose.factors import Factors

SHOWN = "background_shown"
"""What is behind the object where a factor swapped the background that it was paired with."""
METADATA = (
    "image_id",
    "x_coord",
    "y_coord",
    "area",
    "rotation",
    "foreground_class",
    "foreground_instance",
    "background",
    "bg_resolution_width",
    "bg_resolution_height",
    "pct_inside_image",
)
WORTH_PROCESSES = 400
"""Sets of fewer candidates than this are rendered here: worker processes take a second to start."""
_TAKEN = ("truth", "images", "label_space.json", "card.json")
_SAMPLED_UNITS, _SAMPLED_IMAGES = 5, 32


class RenderedFile(NamedTuple):
    """An image by its number: SHA-256 and bytes of its file, and measured columns."""

    number: int
    sha256: str
    bytes: int
    measured: Mapping[str, float]


@dataclass(eq=False)
class RenderWork:
    """The work of a compose job: ``work(shots) -> facts``; files below ``folder`` if there is one.

    Threads may share it: each has a renderer of its own.
    """

    inputs: Inputs
    parameters: ComposeParameters
    factors: Factors
    folder: Path | None = None

    def __post_init__(self) -> None:
        self.encoding = Encoding(self.parameters.format, self.parameters.quality)
        self._own = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        return RenderWork, (self.inputs, self.parameters, self.factors, self.folder)

    def __call__(self, shots: Sequence[ImagePlan]) -> bytes:
        """Render the shots of one unit; equal facts, equal bytes."""
        return pack(fact for _, _, fact in self.files(shots))

    def files(self, shots: Sequence[ImagePlan]) -> Iterator[tuple[ImagePlan, bytes, RenderedFile]]:
        """Each shot with its file and facts; the file is written first where there is a folder."""
        if not hasattr(self._own, "renderer"):
            self._own.renderer = Renderer(self.parameters.renderer, self.factors)
        renderer: Renderer = self._own.renderer
        for shot, data, measured in renderer.encoded(self.inputs, shots, self.encoding):
            if self.folder is not None:
                _write(self._path(shot), data)
            digest = hashlib.sha256(data).hexdigest()
            yield shot, data, RenderedFile(shot.number, digest, len(data), measured)

    def _path(self, shot: ImagePlan) -> str:
        name = self.inputs.cutouts[shot.foreground].class_name
        return f"{self.folder}/{name}/{shot.number}{self.encoding.ending}"

    def prepare(self, results: JobResults, units: Iterable[Unit]) -> None:
        """Make the folders that files go to; forget results whose files are not what they say."""
        for unit in units:
            if results.has(unit.key) and not self._whole(unpack(results.read(unit.key)), unit):
                results.path(unit.key).unlink()
        for name in self.inputs.class_names:
            (self.folder or Path()).joinpath(name).mkdir(parents=True, exist_ok=True)

    def _whole(self, facts: Iterable[RenderedFile], unit: Unit) -> bool:
        known = {fact.number: fact.sha256 for fact in facts}
        for shot in unit.payload:
            try:
                data = Path(self._path(shot)).read_bytes()
            except OSError:
                return False
            if hashlib.sha256(data).hexdigest() != known[shot.number]:
                return False
        return True


def _write(path: str, data: bytes) -> None:
    """Write a file with few calls. It counts only once its unit's result is stored."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def pack(files: Iterable[RenderedFile]) -> bytes:
    """The facts of a unit's images as JSON."""
    rows = [(*fact[:3], dict(sorted(fact.measured.items()))) for fact in files]
    return json.dumps(rows, separators=(",", ":"), allow_nan=True).encode("ascii")


def unpack(data: bytes) -> list[RenderedFile]:
    """What :func:`pack` wrote."""
    try:
        return [RenderedFile(*row) for row in json.loads(data)]
    except (ValueError, TypeError) as error:
        raise HeldoutError(f"facts of rendered images cannot be read ({error})") from None


def render_all(
    plan: Plan, context: BuildContext, job: str, task: Callable[..., bytes]
) -> list[RenderedFile]:
    """Do all units of a plan; the facts about its images, in the order of the plan."""
    units = [
        Unit(unit_key(WORK, plan=plan.key, unit=place), group)
        for place, group in enumerate(in_units(plan.shots))
    ]
    if isinstance(task, RenderWork):
        task.prepare(JobResults(context.runs / job), units)
    scale = len(plan) / max(len(units), 1)

    def in_images(tick: Tick) -> None:
        found, failed = round(tick.found * scale), round(tick.failed * scale)
        total = None if tick.total is None else round(tick.total * scale)
        context.progress(Tick(round(tick.done * scale), found, failed, total, tick.seconds))

    results = replace(context, progress=in_images).complete(Job(name=job, work=task), units)
    facts = {fact.number: fact for unit in units for fact in unpack(results.read(unit.key))}
    return [facts[shot.number] for shot in plan.shots]


def gather(request: ComposeRequest) -> tuple[Sources, tuple[str, ...]]:
    """The pools of a request's folders, and what the user should know about them."""
    foregrounds, notes = gather_foregrounds(
        request.foregrounds,
        labels=request.labels,
        classes=request.classes,
        licence=request.foregrounds_licence,
    )
    backgrounds, more = gather_backgrounds(request.backgrounds, licence=request.backgrounds_licence)
    return {"foregrounds": foregrounds, "backgrounds": backgrounds}, (*notes, *more)


def plan_set(sources: Sources, parameters: ComposeParameters, *, seed: int) -> Plan:
    """Check everything and decide everything; no pixel of the set is made."""
    pools = (pool_in(sources, role) for role in ComposeRecipe.roles)
    inputs = inputs_of(*pools, exif=parameters.exif)
    for name in inputs.class_names:
        if parameters.layout == "siscore" and name in _TAKEN:
            raise UserError(
                f"a class named {name!r} cannot be beside a test set's own files",
                fix="rename its folder, or use --layout plain",
            )
    return make_plan(inputs, parameters, seed=seed)


class ComposeRecipe(Recipe):
    """Objects on backgrounds, every factor controlled."""

    name = "compose"
    version = "1"
    parameters = ComposeParameters
    roles = ("foregrounds", "backgrounds")

    def read(self, values: Mapping[str, Any]) -> ComposeParameters:
        """As cards have them too, where x, y, size and rotation are beside the other factors."""
        return make(ComposeParameters, folded(values))

    def recorded(self, parameters: ComposeParameters) -> dict[str, Any]:
        """As cards have had them from the first: x, y, size and rotation by name."""
        return parameters.recorded()

    def build(
        self, sources: Sources, parameters: ComposeParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """Render the set into a folder of work; its rows, columns and truth."""
        plan = plan_set(sources, parameters, seed=seed)
        job = f"compose-{plan.key[:12]}"
        work = (context.runs / job).resolve()
        folder = work / "files"
        # Files are moved into the set: who makes the same into another folder makes them again.
        context.stack.enter_context(held(work))
        task = RenderWork(plan.inputs, parameters, plan.factors, folder)
        built = describe(plan, sources, render_all(plan, context, job, task))
        root = "." if parameters.layout == "siscore" else "images"
        return replace(built, rendered=Rendered(folder=folder, root=root, work=work))


recipe = ComposeRecipe()


def describe(plan: Plan, sources: Sources, files: Sequence[RenderedFile]) -> RecipeResult:
    """What was made, as a recipe hands it over, without the files themselves."""
    space = sources["foregrounds"].label_space  # type: ignore[attr-defined]
    inputs, shots = plan.inputs, plan.shots
    ids = [plan.image_id(shot) for shot in shots]
    cutouts = [inputs.cutouts[shot.foreground] for shot in shots]
    used = [plan.factors.used(shot, inputs) for shot in shots]
    truth = truth_table(
        ids, [c.class_id for c in cutouts], correct=[list(c.correct) for c in cutouts]
    )
    siscore = plan.parameters.layout == "siscore"
    return RecipeResult(
        images=image_table(_columns(plan, ids, [behind for _, behind in used], files)),
        truths={"original": TruthTable(table=truth)},
        label_space=space,
        columns=_types(plan),
        counts={
            "candidates": plan.candidates,
            "large_enough": plan.candidates - plan.too_small,
            "in_the_image": plan.candidates - plan.too_small - plan.empty,
            "inside_enough": len(plan),
        },
        origins={
            name: (
                *(("foregrounds", inputs.cutouts[i].id) for i in objects),
                *(("backgrounds", inputs.backgrounds[i].id) for i in behind),
            )
            for name, (objects, behind) in zip(ids, used, strict=True)
        },
        documents=siscore_documents(plan, space) if siscore else {},
        factors=tuple(varied(plan)),
        clusters="object",
        units=("object", "background"),
        citation=CITATION,
        notes=notes_of(plan),
    )


def _columns(
    plan: Plan,
    ids: Sequence[str],
    shown: Sequence[tuple[int, ...]],
    files: Sequence[RenderedFile],
) -> dict[str, Sequence[Any]]:
    """The images table: factors as set, rounded so that they join with what people write, then
    hashes of files and what was measured."""
    inputs, shots = plan.inputs, plan.shots
    ending = Encoding(plan.parameters.format).ending
    found: dict[str, Sequence[Any]] = {
        "image_id": ids,
        "path": [f"{name}{ending}" for name in ids],
        "width": [shot.width for shot in shots],
        "height": [shot.height for shot in shots],
        "x": [round(shot.x, 10) for shot in shots],
        "y": [round(shot.y, 10) for shot in shots],
        "size": [round(shot.area, 10) for shot in shots],
        "rotation": [round(float(shot.rotation), 10) for shot in shots],
        "object": [inputs.cutouts[shot.foreground].id for shot in shots],
        "background": [inputs.backgrounds[shot.background].id for shot in shots],
        "inside": [shot.inside for shot in shots],
    }
    behind = [inputs.backgrounds[places[0]].id if places else None for places in shown]
    if behind != found["background"]:
        found[SHOWN] = behind
    if len(plan.parameters.sizes) > 1:
        found["resolution"] = [f"{shot.width}x{shot.height}" for shot in shots]
    for key in plan.factors.grid:
        neutral = plan.factors[key].neutral
        found[key] = [shot.values.get(key, neutral) for shot in shots]
    found["sha256"] = [file.sha256 for file in files]
    more = sorted({name for file in files for name in file.measured})
    for name in dict.fromkeys(["mask_fraction", "visible_fraction", *more]):
        found[name] = [file.measured.get(name) for file in files]
    return found


def _types(plan: Plan) -> dict[str, ColumnType]:
    ordered, categorical = ColumnType(kind="ordered"), ColumnType(kind="categorical")
    return {
        "x": ColumnType(kind="grid", grid="location", axis="x"),
        "y": ColumnType(kind="grid", grid="location", axis="y"),
        "size": ColumnType(kind="ordered", unit="share of the image"),
        "rotation": ColumnType(kind="circular", unit="degrees", period=360),
        **dict.fromkeys(("object", "background", SHOWN), categorical),
        **dict.fromkeys(("inside", "mask_fraction", "visible_fraction"), ordered),
        **plan.factors.columns(plan.factors.grid),
        "resolution": ColumnType(kind="categorical", order=plan.parameters.resolution),
    }


def siscore_documents(plan: Plan, label_space: LabelSpace) -> dict[str, bytes]:
    """The original's ``metadata.csv`` and the three lists beside it, byte for byte.

    Numbers are not rounded but for ``pct_inside_image``; classes, instances and backgrounds are
    places in sorted lists; ``foreground_classes.csv`` has places in the label space, for
    ImageNet-1k its usual index.
    """
    inputs = plan.inputs
    class_ids = {cutout.class_name: cutout.class_id for cutout in inputs.cutouts}
    rows = []
    for shot in plan.shots:
        cutout = inputs.cutouts[shot.foreground]
        grid = (shot.number, shot.x, shot.y, shot.area, shot.rotation)
        shown = (cutout.class_index, cutout.instance, shot.background, shot.width, shot.height)
        rows.append((*grid, *shown, round(shot.inside, 4)))
    lists = {
        "backgrounds.csv": enumerate(background.name for background in inputs.backgrounds),
        "foreground_classes.csv": [
            (label_space.index(class_ids[name]), name) for name in inputs.class_names
        ],
        "foreground_classes_metadata_indices.csv": enumerate(inputs.class_names),
    }
    made = {"metadata.csv": _csv(METADATA, rows)}
    return made | {name: _csv(("int", "label"), listed) for name, listed in lists.items()}


def _csv(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """CSV with the line ends that Python's ``csv`` writes, CR LF."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream)
    writer.writerow(header)
    writer.writerows(map(csv_cells, rows))
    return stream.getvalue().encode("utf-8")


def varied(plan: Plan) -> dict[str, str]:
    """The factors that take several values, as the card names them, with words for each."""
    parameters = plan.parameters
    several = {k: len(getattr(parameters, k)) > 1 for k in ("x", "y", "size", "rotation")}
    several["resolution"] = len(parameters.resolution) > 1
    several |= {key: len(values) > 1 for key, values in plan.factors.grid.items()}
    found = {key: key for key, many in several.items() if many}
    if several["x"] and several["y"]:
        del found["x"], found["y"]
        return {"x&y": "place", **found}
    return found


def notes_of(plan: Plan) -> tuple[str, ...]:
    """What the reader of results should know."""
    inputs, parameters = plan.inputs, plan.parameters
    notes = []
    if plan.too_small:
        notes.append(
            f"{plan.too_small:,} candidates were dropped because a side of the object would be "
            "under a pixel"
        )
    if plan.empty:
        notes.append(
            f"{plan.empty:,} candidates were dropped because the object lies outside the image"
        )
    if plan.filtered:
        notes.append(
            f"{plan.filtered:,} of {plan.candidates:,} candidates were dropped because less than "
            f"{parameters.min_inside:g} of the object's box lies inside the image"
        )
    notes += mix_notes(plan)
    right = [angle for angle in parameters.rotation if angle % 90 == 0]
    if len(parameters.rotation) > 1 and right:
        shown = ", ".join(f"{angle:g}" for angle in right[:4])
        notes.append(
            f"rotations by {shown} degrees need no resampling, so that objects are sharper there "
            "than at other angles"
        )
    class_ids = {cutout.class_name: cutout.class_id for cutout in inputs.cutouts}
    for name, class_id in class_ids.items():
        if name in SUSPECT:
            index = siscore_names()[name].index
            if class_id == LabelSpace.load("imagenet-1k").ids[index]:
                notes.append(f"class {name} is doubtful: {SUSPECT[name]}")
    if {background.mode for background in inputs.backgrounds} & {"RGBA", "LA", "PA"}:
        notes.append("backgrounds with alpha are used as if opaque")
    return (*notes, *plugin_notes(plan.factors))


def plugin_notes(factors: Factors) -> list[str]:
    """Where factors that are not built in come from, with the version or hash of each."""
    return [f"factors of {name}, {version}" for name, version in factors.identity.items()]


def mix_notes(plan: Plan) -> list[str]:
    """What the filter did to the mix: classes, and values of other factors, that drop out."""
    words = {"class": "class", **varied(plan)}
    taken: dict[str, list[Value]] = {"class": list(_class_names(plan))}
    taken |= {key: [factor_value(plan, shot, key) for shot in plan.shots] for key in varied(plan)}
    notes = []
    for key in varied(plan):
        values = dict(zip(map(_shown, taken[key]), taken[key], strict=True))
        for other in words:
            if other == key:
                continue
            pairs = {(_shown(k), _shown(v)) for k, v in zip(taken[other], taken[key], strict=True)}
            gone = {}
            for kind in sorted({kind for kind, _ in pairs}):
                places = [values[v] for v in values if (kind, v) not in pairs]
                if places:
                    gone[kind] = (
                        f"{words[other]} {kind} has no images at {words[key]} {_span(places)}"
                    )
            if gone:
                more = f", and {len(gone) - 5} more" if len(gone) > 5 else ""
                notes.append(
                    f"the filter changes the mix along {words[key]}: "
                    f"{'; '.join(list(gone.values())[:5])}{more}; compare on balanced support"
                )
    return notes


def _class_names(plan: Plan) -> list[str]:
    return [plan.inputs.cutouts[shot.foreground].class_name for shot in plan.shots]


def _span(values: Sequence[Value]) -> str:
    numbers = [value for value in values if isinstance(value, int | float)]
    if len(numbers) < len(values) or len(values) < 3:
        return ", ".join(_shown(value) for value in values[:5])
    return f"{_shown(min(numbers))} to {_shown(max(numbers))} ({len(numbers)} values)"


def _shown(value: Value) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def factor_value(plan: Plan, shot: ImagePlan, key: str) -> Value:
    """A shot's value of a factor, by the name of its column; ``x&y`` is a place as text."""
    if key == "x&y":
        return f"({_shown(shot.x)}, {_shown(shot.y)})"
    if key == "resolution":
        return f"{shot.width}x{shot.height}"
    if key in ("x", "y", "size", "rotation"):
        value: float = getattr(shot, "area" if key == "size" else key)
        return value
    neutral = plan.factors[key].neutral
    return shot.values.get(key, "neutral" if neutral is None else neutral)


@dataclass(frozen=True, kw_only=True)
class Composed:
    """A set that was built, and what the user should know.

    ``unchanged``  whether it was there already
    """

    testset: TestSet
    notes: tuple[str, ...]
    unchanged: bool = False


@dataclass(frozen=True, kw_only=True)
class BuildEstimate:
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
    request: ComposeRequest,
    folder: Path,
    *,
    runs: Path,
    workers: int | None = None,
    progress: Progress = no_progress,
) -> Composed:
    """Build the set of a request in ``folder``; the same request again changes nothing.

    ``workers``  processes; all processors by default. The set is the same for any number.

    A build that was ended goes on where it was; its work in ``runs`` is removed when it is done.
    """
    _check_free(folder)
    sources, notes = gather(request)
    # The same request at once: one builds, the others wait and find it.
    with held(folder.resolve().with_name(f"{folder.resolve().name}.build")):
        if not request.replace and (known := _existing(folder, sources, request)):
            return Composed(testset=known, notes=(*notes, *known.card.notes), unchanged=True)
        with _workers(workers, request, len(sources["foregrounds"])) as executor:
            made = run_recipe(
                recipe,
                sources,
                folder=folder,
                runs=runs,
                parameters=request,
                seed=request.seed,
                name=request.name or slug(folder.resolve().name),
                executor=executor,
                progress=progress,
                replace=request.replace,
            )
    with suppress(OSError):
        runs.rmdir()
    return Composed(testset=made, notes=(*notes, *made.card.notes))


def _check_free(folder: Path) -> None:
    """Refuse a folder that the set could not be written to, before any work."""
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise ExistsError(f"{place} is a file", fix="name another folder")
    if folder.is_dir() and not (folder / "card.json").exists() and any(folder.iterdir()):
        raise ExistsError(f"{folder} exists and is not a test set", fix="name another folder")
    slug(folder.resolve().name)


def _existing(folder: Path, sources: Sources, request: ComposeRequest) -> TestSet | None:
    """The set of this very request, if the folder holds it; one of another request is refused."""
    if not (folder / "card.json").is_file():
        return None
    card = Card.read(folder / "card.json")
    made = dict(card.recipe or {})
    # Cards of 0.1 name PNG twice: as the format, and as ``lossless``.
    made["parameters"] = {k: v for k, v in made.get("parameters", {}).items() if k != "lossless"}
    asked = {"name": recipe.name, "version": recipe.version, "seed": request.seed}
    if made != {**asked, "parameters": request.recorded()}:
        raise ExistsError(
            f"{folder} holds another test set", fix="name another folder, or use --replace"
        )
    from heldout.curate.compose.factors import Factors

    parents = {parent.get("relation"): parent.get("content_hash") for parent in card.parents}
    same = all(parents.get(role) == source.content_hash for role, source in sources.items())
    plugins = plugin_notes(Factors.of(request))
    return load(folder) if same and set(plugins) <= set(card.notes) else None


@contextmanager
def _workers(
    workers: int | None, parameters: ComposeParameters, objects: int
) -> Iterator[Executor | None]:
    """Worker processes, if they are worth it: they load while the set is planned."""
    count = worker_count(workers)
    grid = [parameters.x, parameters.y, parameters.size, parameters.rotation, parameters.resolution]
    values = [*grid, *parameters.extra_factors.values()]
    candidates = objects * parameters.backgrounds_per_object * math.prod(map(len, values))
    if count == 1 or (workers is None and candidates < WORTH_PROCESSES):
        yield None
        return
    processes = Processes(count)
    with processes.started(_warm_up):
        yield processes


def _warm_up() -> None:
    """Load what rendering needs: this module."""


def estimate(request: ComposeRequest) -> BuildEstimate:
    """What a request would give: everything is checked and counted, a few images are rendered."""
    sources, notes = gather(request)
    plan = plan_set(sources, request, seed=request.seed)
    size, seconds = _sampled(plan)
    values = {key: [factor_value(plan, shot, key) for shot in plan.shots] for key in varied(plan)}
    return BuildEstimate(
        counts={
            "objects": len(plan.inputs.cutouts),
            "backgrounds": len(plan.inputs.backgrounds),
            "candidates": plan.candidates,
            "too_small": plan.too_small,
            "outside": plan.empty,
            "filtered": plan.filtered,
            "images": len(plan),
        },
        values={key: dict(Counter(map(_shown, taken))) for key, taken in values.items()},
        classes=dict(sorted(Counter(_class_names(plan)).items())),
        bytes=size,
        seconds=seconds,
        notes=(*notes, *notes_of(plan)),
    )


def _sampled(plan: Plan) -> tuple[int, float]:
    """Bytes and processor seconds of all images, from the beginnings of a few units."""
    work = RenderWork(plan.inputs, plan.parameters, plan.factors)
    units = list(in_units(plan.shots))
    chosen = units[:: max(1, math.ceil(len(units) / _SAMPLED_UNITS))]
    work(chosen[0][:1])  # what is loaded once is no part of the time of an image
    began = time.process_time()
    sizes = [len(data) for unit in chosen for _, data, _ in work.files(unit[:_SAMPLED_IMAGES])]
    spent = time.process_time() - began
    each = len(plan) / len(sizes)
    return round(sum(sizes) * each), spent * each
