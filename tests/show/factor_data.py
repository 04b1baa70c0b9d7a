"""A report of generated factor sets, with drawn images: every shape that a reading has."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from heldout.core.context import Context
from heldout.core.request import make
from heldout.data.images import MemorySource
from heldout.data.testset import ColumnType, TestSet
from heldout.measure.evaluation.flow import factor_contrasts, reading_notes
from heldout.measure.evaluation.requests import ScoreRequest
from heldout.measure.evaluation.resolve import resolve
from heldout.measure.score.compare import compare, simultaneous
from heldout.measure.score.curve_summaries import curve_records
from heldout.measure.score.estimate import counts, scores
from heldout.show.thumbnails import examples
from heldout.show.view import ReportData
from tests.measure.score.factor_worlds import FactorWorld, factor_world

MODELS = ("oak", "yew", "ash")


def size_chance(image: Any, ease: np.ndarray) -> float:
    return float(
        np.clip(
            0.95 / (1 + np.exp(-(image["size"] - 0.12 - 0.09 * ease[1]) * 14)) + 0.08 * ease[0],
            0.02,
            0.97,
        )
    )


def angle_chance(image: Any, ease: np.ndarray) -> float:
    return float(
        np.clip(
            0.7 - 0.12 * ease[1] + 0.28 * np.cos(np.radians(image["angle"])) + 0.08 * ease[0], 0, 1
        )
    )


def place_chance(image: Any, ease: np.ndarray) -> float:
    edge = max(abs(image["x"] - 0.5), abs(image["y"] - 0.48)) * 2
    return float(np.clip(0.95 - (0.35 + 0.2 * ease[1]) * edge**2 + 0.06 * ease[0], 0.03, 0.98))


def factor_worlds() -> dict[str, FactorWorld]:
    """Sizes with a filter; angles of two sizes, the larger filtered; a grid with missing cells."""
    number = lambda image: int(image["object"].split()[1])  # noqa: E731
    return {
        "sizes": factor_world(
            {"size": [round(0.04 * i, 2) for i in range(1, 26)]},
            size_chance,
            types={"size": ColumnType(kind="ordered", unit="of the image")},
            objects=24,
            classes=6,
            models=MODELS,
            keep=lambda image: image["size"] <= 0.55 + 0.1 * (number(image) % 6),
            name="factors-size",
        ),
        "angles": factor_world(
            {"angle": list(range(1, 360, 20)), "size": [0.2, 0.8]},
            angle_chance,
            objects=12,
            models=MODELS,
            keep=lambda image: image["size"] < 0.5 or image["angle"] in (1, 21, 161, 181, 341),
            name="factors-angle",
        ),
        "places": factor_world(
            {"x": [i / 10 for i in range(11)], "y": [i / 8 for i in range(9)]},
            place_chance,
            objects=10,
            backgrounds=1,
            models=MODELS,
            factor_entries=["x&y"],
            keep=lambda image: not (image["x"] > 0.8 and image["y"] < 0.2),
            name="factors-place",
        ),
    }


def drawn(world: FactorWorld, name: str) -> TestSet:
    """The test set with an image for every row: a disc of its size, at its place, turned."""
    from PIL import Image, ImageDraw

    images = {}
    for row in world.images:
        ground = 60 + 50 * int(row["background"].split()[1])
        picture = Image.new("RGB", (160, 160), (ground + 60, ground + 80, ground + 40))
        draw = ImageDraw.Draw(picture)
        half = 80 * float(np.sqrt(row.get("size", 0.15)))
        x, y = 160 * row.get("x", 0.5), 160 * row.get("y", 0.5)
        hue = 37 * int(row["object"].split()[1]) % 200
        draw.rounded_rectangle(
            (x - half, y - half * 0.7, x + half, y + half * 0.7), half / 3, fill=(200, hue, 60)
        )
        turn = np.radians(row.get("angle", 0))
        ends = (x + half * np.cos(turn), y - half * np.sin(turn) * 0.7)
        draw.line((x, y, *ends), fill=(30, 30, 30), width=4)
        held = io.BytesIO()
        picture.save(held, "JPEG")
        images[row["image_id"]] = held.getvalue()
    return replace(world.testset, source=MemorySource(images))


def factor_report(*, images: bool = True, replicates: int = 200) -> ReportData:
    """Everything that a reading of factors puts into a page."""
    records: list[Any] = []
    shown: list[Any] = []
    columns = {}
    for name, world in factor_worlds().items():
        measured = world.measured()
        entries = {"angles": ("angle", "size", "angle&size")}.get(name)
        context = Context()
        asked = {"models": "all", "testsets": context.bind(world.testset), "by": entries}
        reading = resolve(make(ScoreRequest, {**asked, "replicates": replicates}), context)
        by = reading.slices(world.testset)
        records += scores(measured, by=by, cluster="object", replicates=replicates)
        records += curve_records(
            measured, reading.curve_entries(world.testset), replicates=replicates
        )
        pairs = list(combinations(MODELS, 2))
        records += compare(measured, pairs, cluster="object", replicates=replicates)
        records += simultaneous(list(factor_contrasts(measured, pairs, reading)))
        records += counts([measured])
        columns[world.testset.name] = world.testset.card.columns
        if images:
            testset = drawn(world, name)
            for entry in reading.curve_entries(world.testset):
                shown += examples(testset, entry)
    return ReportData(
        title="Objects at many sizes, angles and places",
        records=records,
        columns=columns,
        warnings=reading_notes(records),
        examples=shown,
        settings={"heldout": "0"},
    )
