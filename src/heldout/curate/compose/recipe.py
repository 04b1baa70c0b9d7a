"""The recipe ``compose``: cut-outs on backgrounds over a grid of factors.

(SI-SCORE: Djolonga et al., "On robustness and transferability of convolutional neural networks",
CVPR 2021.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heldout.core.engine import Job, Results, Tick
from heldout.curate.compose.config import ComposeParameters
from heldout.curate.compose.facts import Fact
from heldout.curate.compose.further import Further
from heldout.curate.compose.inputs import Inputs, inputs_of
from heldout.curate.compose.layout import check_class_names, siscore_documents
from heldout.curate.compose.plan import Plan, make_plan, mix_notes
from heldout.curate.compose.rendering import (
    WORK,
    RenderWork,
    encoding_of_parameters,
    image_name,
    plan_key,
    read_facts,
    render_units,
)
from heldout.curate.recipe import (
    BuildContext,
    Recipe,
    RecipeResult,
    Rendered,
    Sources,
    TruthTable,
    pool_in,
)
from heldout.data.labels.siscore import CITATION, SUSPECT, siscore_names
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.tables import image_table, truth_table

SHOWN = "background_shown"
"""What lies behind the object where a factor swapped the background that it was paired with."""
_MEASURED = {
    "inside": ColumnType(kind="ordered"),
    "mask_fraction": ColumnType(kind="ordered"),
    "visible_fraction": ColumnType(kind="ordered"),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Prepared:
    """A set before rendering: inputs checked, plan made, key known."""

    inputs: Inputs
    parameters: ComposeParameters
    further: Further
    plan: Plan
    key: str

    @property
    def job(self) -> str:
        """The name of the job that renders it."""
        return f"compose-{self.key[:12]}"


def prepare(sources: Sources, parameters: ComposeParameters, *, seed: int) -> Prepared:
    """Check everything and decide everything; no pixel of the set is made."""
    further = Further.of(parameters)
    inputs = inputs_of(
        pool_in(sources, "foregrounds"), pool_in(sources, "backgrounds"), exif=parameters.exif
    )
    if parameters.layout == "siscore":
        check_class_names(inputs)
    plan = make_plan(inputs, parameters, seed=seed, further=further)
    return Prepared(
        inputs=inputs,
        parameters=parameters,
        further=further,
        plan=plan,
        key=plan_key(inputs, parameters, seed, further.identity),
    )


class ComposeRecipe(Recipe):
    """Objects on backgrounds, every factor controlled."""

    name = "compose"
    version = "1"
    parameters = ComposeParameters
    roles = ("foregrounds", "backgrounds")

    def build(
        self, sources: Sources, parameters: ComposeParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """Render the set into a folder of work; its rows, columns and truth."""
        from concurrent.futures import ThreadPoolExecutor

        prepared = prepare(sources, parameters, seed=seed)
        with ThreadPoolExecutor(1) as aside:  # while worker processes render
            outline = aside.submit(outlined, prepared, sources)
            facts, folder = _rendered(prepared, context)
            return described(outline.result(), prepared, facts, rendered=folder)


def _rendered(prepared: Prepared, context: BuildContext) -> tuple[dict[int, Fact], Path]:
    """Render all files; the facts about them and the folder where they lie."""
    job = context.runs / prepared.job
    folder = (job / "files").resolve()
    task = RenderWork(
        prepared.inputs,
        prepared.parameters.renderer,
        encoding_of_parameters(prepared.parameters),
        folder,
        prepared.further,
    )
    units = render_units(prepared.plan.shots, prepared.key)
    task.forget_lost(Results(job), units)
    task.prepare()
    counted = BuildContext(
        context.runs, context.executor, in_images(context.progress, len(prepared.plan), len(units))
    )
    results = counted.complete(Job(name=prepared.job, work=task), units)
    return read_facts(results, units), folder


def in_images(progress: Any, images: int, units: int) -> Any:
    """Progress that counts images instead of units."""
    scale = images / max(units, 1)

    def show(tick: Tick) -> None:
        progress(
            Tick(
                round(tick.done * scale),
                round(tick.found * scale),
                round(tick.failed * scale),
                None if tick.total is None else round(tick.total * scale),
                tick.seconds,
            )
        )

    return show


def describe(prepared: Prepared, facts: Mapping[int, Fact], sources: Sources) -> RecipeResult:
    """What was made, as a recipe hands it over; its files are not kept."""
    return described(outlined(prepared, sources), prepared, facts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Outline:
    """What can be said of a set before its images are made: all but what is measured on files."""

    columns: Mapping[str, Sequence[Any]]
    truth: Any
    label_space: Any
    origins: Mapping[str, tuple[tuple[str, str], ...]]
    documents: Mapping[str, bytes]
    notes: tuple[str, ...]


def outlined(prepared: Prepared, sources: Sources) -> Outline:
    """The outline of a set."""
    inputs, parameters, shots = prepared.inputs, prepared.parameters, prepared.plan.shots
    space = sources["foregrounds"].label_space  # type: ignore[attr-defined]
    ids = [image_name(inputs, shot) for shot in shots]
    ending = encoding_of_parameters(parameters).ending
    cutouts = [inputs.cutouts[shot.foreground] for shot in shots]
    siscore = parameters.layout == "siscore"
    return Outline(
        columns={
            "image_id": ids,
            "path": [f"{name}{ending}" for name in ids],
            "width": [shot.width for shot in shots],
            "height": [shot.height for shot in shots],
            **_set_columns(prepared),
        },
        truth=truth_table(
            ids,
            [cutout.class_id for cutout in cutouts],
            correct=[list(cutout.correct) for cutout in cutouts],
        ),
        label_space=space,
        origins=_origins(prepared, ids),
        documents=siscore_documents(inputs, shots, space) if siscore else {},
        notes=notes_of(prepared),
    )


def described(
    outline: Outline,
    prepared: Prepared,
    facts: Mapping[int, Fact],
    *,
    rendered: Path | None = None,
) -> RecipeResult:
    """What was made: the outline with the facts about files, which lie in ``rendered``."""
    plan = prepared.plan
    columns = {**outline.columns, **_measured_columns(prepared, facts)}
    siscore = prepared.parameters.layout == "siscore"
    return RecipeResult(
        images=image_table(columns),
        truths={"original": TruthTable(table=outline.truth)},
        label_space=outline.label_space,
        columns=_types(prepared),
        counts={
            "candidates": plan.candidates,
            "large_enough": plan.candidates - plan.too_small,
            "in_the_image": plan.candidates - plan.too_small - plan.empty,
            "inside_enough": len(plan),
        },
        origins=outline.origins,
        rendered=None
        if rendered is None
        else Rendered(folder=rendered, root="." if siscore else "images"),
        documents=outline.documents,
        factors=tuple(varied(prepared)),
        clusters="object",
        units=("object", "background"),
        citation=CITATION,
        notes=outline.notes,
    )


def shown_backgrounds(prepared: Prepared) -> list[str | None]:
    """What lies behind the object of each shot: factors may show another background than the
    one it was paired with, or none."""
    inputs, further = prepared.inputs, prepared.further
    found: list[str | None] = []
    for shot in prepared.plan.shots:
        places = further.used(inputs, shot)[1]
        found.append(inputs.backgrounds[places[0]].id if places else None)
    return found


def _set_columns(prepared: Prepared) -> dict[str, Sequence[Any]]:
    """Factors as set, rounded so that they join with what people write."""
    inputs, shots = prepared.inputs, prepared.plan.shots
    found: dict[str, Sequence[Any]] = {
        "x": [_plain(shot.x) for shot in shots],
        "y": [_plain(shot.y) for shot in shots],
        "size": [_plain(shot.area) for shot in shots],
        "rotation": [_plain(float(shot.rotation)) for shot in shots],
        "object": [inputs.cutouts[shot.foreground].id for shot in shots],
        "background": [inputs.backgrounds[shot.background].id for shot in shots],
        "inside": [shot.inside for shot in shots],
    }
    shown = shown_backgrounds(prepared)
    if shown != found["background"]:
        found[SHOWN] = shown
    if len(prepared.parameters.sizes) > 1:
        found["resolution"] = [f"{shot.width}x{shot.height}" for shot in shots]
    for key in prepared.further.keys:
        neutral = prepared.further.neutral(key)
        found[key] = [shot.values.get(key, neutral) for shot in shots]
    return found


def _measured_columns(prepared: Prepared, facts: Mapping[int, Fact]) -> dict[str, Sequence[Any]]:
    """Hashes of files, and what was measured."""
    listed = [facts[shot.number] for shot in prepared.plan.shots]
    more = sorted({name for fact in listed for name in fact.measured})
    found: dict[str, Sequence[Any]] = {"sha256": [fact.sha256 for fact in listed]}
    for name in dict.fromkeys(["mask_fraction", "visible_fraction", *more]):
        found[name] = [fact.measured.get(name) for fact in listed]
    return found


def _plain(value: float) -> float:
    return round(value, 10)


def _types(prepared: Prepared) -> dict[str, ColumnType]:
    parameters = prepared.parameters
    types = {
        "x": ColumnType(kind="grid", grid="location", axis="x"),
        "y": ColumnType(kind="grid", grid="location", axis="y"),
        "size": ColumnType(kind="ordered", unit="share of the image"),
        "rotation": ColumnType(kind="circular", unit="degrees", period=360),
        "object": ColumnType(kind="categorical"),
        "background": ColumnType(kind="categorical"),
        SHOWN: ColumnType(kind="categorical"),
        **_MEASURED,
        **prepared.further.columns(),
    }
    if len(parameters.sizes) > 1:
        types["resolution"] = ColumnType(kind="categorical", order=parameters.resolution)
    return types


def varied(prepared: Prepared) -> dict[str, str]:
    """The factors that take several values, as the card names them, with words for each."""
    parameters = prepared.parameters
    found: dict[str, str] = {}
    if len(parameters.x) > 1 and len(parameters.y) > 1:
        found["x&y"] = "place"
    for key in ("x", "y"):
        if "x&y" not in found and len(getattr(parameters, key)) > 1:
            found[key] = key
    for key in ("size", "rotation", "resolution"):
        if len(getattr(parameters, key)) > 1:
            found[key] = key
    for key, values in prepared.further.listed():
        if len(values) > 1:
            found[key] = key
    return found


def notes_of(prepared: Prepared) -> tuple[str, ...]:
    """What the reader of results should know."""
    inputs, parameters, plan = prepared.inputs, prepared.parameters, prepared.plan
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
    notes += mix_notes(inputs, plan.shots, varied(prepared), prepared.further)
    right = [angle for angle in parameters.rotation if angle % 90 == 0]
    if len(parameters.rotation) > 1 and right:
        shown = ", ".join(f"{angle:g}" for angle in right[:4])
        notes.append(
            f"rotations by {shown} degrees need no resampling, so that objects are sharper there "
            "than at other angles"
        )
    known = siscore_names()
    for cutout in {c.class_name: c for c in inputs.cutouts}.values():
        name = cutout.class_name
        if name in SUSPECT and cutout.class_id == _imagenet_id(known[name].index):
            notes.append(f"class {name} is doubtful: {SUSPECT[name]}")
    flat = sorted({b.mode for b in inputs.backgrounds if b.mode in ("RGBA", "LA", "PA")})
    if flat:
        notes.append("backgrounds with alpha are used as if opaque")
    notes += plugin_notes(prepared.further)
    return tuple(notes)


def plugin_notes(further: Further) -> list[str]:
    """Where factors that are not built in come from, with the version or hash of each."""
    return [f"factors of {name}, {version}" for name, version in further.identity.items()]


def _imagenet_id(index: int) -> str:
    from heldout.data.labels.label_space import LabelSpace

    return LabelSpace.load("imagenet-1k").ids[index]


def _origins(prepared: Prepared, ids: Sequence[str]) -> dict[str, tuple[tuple[str, str], ...]]:
    """The inputs that each image shows."""
    inputs = prepared.inputs
    pairs: dict[Any, tuple[tuple[str, str], ...]] = {}
    found = {}
    for name, shot in zip(ids, prepared.plan.shots, strict=True):
        cutouts, backgrounds = prepared.further.used(inputs, shot)
        key = cutouts, backgrounds
        if key not in pairs:
            pairs[key] = (
                *(("foregrounds", inputs.cutouts[i].id) for i in cutouts),
                *(("backgrounds", inputs.backgrounds[i].id) for i in backgrounds),
            )
        found[name] = pairs[key]
    return found


recipe = ComposeRecipe()

__all__ = ["WORK", "ComposeRecipe", "Prepared", "describe", "prepare", "recipe"]
