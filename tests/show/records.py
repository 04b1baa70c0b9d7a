"""Generated records for the report's tests: every record kind, column type and metric style."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from heldout.core.records import Count
from heldout.data.testset.columns import ColumnType
from heldout.measure.score.records import Comparison, Fit, Record, Score, Summary, Tally
from heldout.measure.score.slices import format_slice, parse_slice
from heldout.show.mistakes import MistakeCard
from heldout.show.thumbnails import Example
from heldout.show.view import ReportData

HASH = "0123456789abcdef" * 4
PIXEL = "data:image/gif;base64,R0lGODlhAQABAAAAACH5BAEKAAEALAAAAAABAAEAAAICTAEAOw=="
COLUMNS = {
    "region": ColumnType(kind="categorical"),
    "size": ColumnType(kind="ordered", unit="% of image"),
    "quality": ColumnType(kind="ordered", order=("poor", "fair", "fine")),
    "angle": ColumnType(kind="circular", period=360, unit="degrees"),
    "left": ColumnType(kind="grid", grid="place", axis="x"),
    "top": ColumnType(kind="grid", grid="place", axis="y"),
    "remark": ColumnType(kind="text"),
}
SLICES: tuple[dict[str, object], ...] = (
    *({"region": value} for value in ("Africa", "Asia", "New York & co")),
    *({"size": value} for value in (1, 5, 20, 100)),
    *({"quality": value} for value in ("fair", "fine", "poor")),
    *({"angle": value} for value in (0, 90, 180, 270)),
    *({"left": x / 2, "top": y / 2} for x in range(3) for y in range(3)),
    *({"region": r, "quality": q} for r in ("Africa", "Asia") for q in ("poor", "fine")),
    {"remark": "free text"},
    {"region": "Asia", "quality": "fine", "size": 5},
)


def score(
    model: str, testset: str, correct: int, n: int, *, metric: str = "top1", slice: str = "all"
) -> Score:
    """A share with its Wilson interval."""
    z, p = 1.959963984540054, correct / n
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return Score(
        model=model,
        testset=testset,
        truth="original",
        metric=metric,
        slice=slice,
        n=n,
        value=p,
        low=max(0.0, centre - half),
        high=min(1.0, centre + half),
        interval="wilson",
        level=0.95,
        testset_hash=HASH,
        predictions_hash=HASH[::-1],
    )


def scores(
    models: Sequence[str], testsets: Sequence[str], *, metrics: Sequence[str]
) -> list[Score]:
    """Whole-set scores: later models are worse, later test sets harder."""
    return [
        score(
            model,
            testset,
            9000 - 250 * (i % 20) - 13 * (i // 20) - 700 * j + 300 * k,
            10000,
            metric=metric,
        )
        for j, testset in enumerate(testsets)
        for i, model in enumerate(models)
        for k, metric in enumerate(metrics)
    ]


def slice_scores(
    models: Sequence[str], testset: str, slices: Sequence[dict[str, object]] = SLICES
) -> list[Score]:
    """Scores on slices, 500 images each."""
    return [
        score(model, testset, 430 - 11 * (i % 30) - 7 * (k % 9), 500, slice=format_slice(values))
        for i, model in enumerate(models)
        for k, values in enumerate(slices)
    ]


def fits(found: Sequence[Score], baseline: str) -> list[Fit]:
    """Least-squares lines on linear and logit axes through the top-1 scores."""
    value = {(s.model, s.testset): s.value for s in found if s.metric == "top1"}
    models = sorted({model for model, _ in value})
    records = []
    for testset in sorted({s.testset for s in found} - {baseline}):
        x = np.array([value[model, baseline] for model in models])
        y = np.array([value[model, testset] for model in models])
        for axes in ("linear", "logit"):
            if axes == "logit":
                x, y = np.log(x / (1 - x)), np.log(y / (1 - y))
            slope, intercept = np.polyfit(x, y, 1)
            records.append(
                Fit(
                    testset=testset,
                    baseline=baseline,
                    metric="top1",
                    axes=axes,
                    models=len(models),
                    slope=float(slope),
                    intercept=float(intercept),
                    r2=float(np.corrcoef(x, y)[0, 1] ** 2),
                    slope_low=float(slope) - 0.1,
                    slope_high=float(slope) + 0.1,
                    covariance=(0.0025, -0.0015, 0.0016),
                    interval="errors in variables, t, models and images",
                    level=0.95,
                )
            )
    return records


def everything(models: Sequence[str] = ("ant", "bee", "cat", "dog", "elk")) -> ReportData:
    """A report with every kind of record and every type of column."""
    whole = scores(models, ("old", "new", "newer"), metrics=("top1", "top5"))
    records: list[Record] = [*whole, *slice_scores(models, "new"), *fits(whole, "old")]
    records += [
        Score(model=models[0], testset="old", truth="original", metric="nll", n=10000, value=1.25),
        Score(
            model=models[0],
            testset="old",
            truth="original",
            metric="top1_rank",
            n=10000,
            value=1,
            low=1,
            high=2,
        ),
        Comparison(
            model=models[0],
            other=models[1],
            testset="new",
            truth="original",
            metric="top1",
            n=10000,
            difference=0.025,
            low=0.02,
            high=0.03,
            p=1e-6,
            test="mcnemar",
        ),
        Comparison(
            model=models[1],
            other=models[2],
            testset="new",
            truth="original",
            metric="top1",
            n=10000,
            difference=-0.001,
            p=0.4,
        ),
        Count(name="n_failed", value=3, model=models[0], testset="new"),
        Count(name="n_left_out", value=12345),
    ]
    records += tallies(models, "new", slices=SLICES[:-2])
    records += [
        score(model, "new", 8000 + 100 * place, 10000, metric=f"top1{ending}")
        for place, ending in enumerate(("_minor", "_explained", "_judged_minor"))
        for model in models
    ]
    records += discovered(models[0], "new", "quality=fine&region=Asia")
    return ReportData(
        title="Everything",
        records=records,
        columns={"new": COLUMNS},
        provenance=[
            {"testset": "old", "content_hash": HASH, "n": 10000, "recipe": "r", "parents": []},
            {"testset": "new", "content_hash": HASH, "n": 10000, "extra": {"b": 1, "a": 2.5}},
            {"model": models[0], "testset": "old", "predictions_hash": HASH, "source": "x.npy"},
        ],
        warnings=["columns were reversed"],
        notes=["made for a test"],
        settings={"command": "heldout report", "heldout": "0", "created": "2026-01-01"},
        mistakes=[card("a cat"), card("a dog", severity="", basis="proposed")],
        baseline="old",
    )


CATEGORY_NAMES = ("Fine-grained error", "Spurious Correlation", "Other")


def tallies(
    models: Sequence[str],
    testset: str,
    *,
    categories: Sequence[str] = CATEGORY_NAMES,
    slices: Sequence[Mapping[str, object]] = (),
    of: int = 400,
) -> list[Tally]:
    """Mistakes of every category, half of them judged Major; margins and slices agree."""

    def one(model: str, category: str, severity: str, basis: str, n: int, name: str) -> Tally:
        return Tally(
            model=model,
            testset=testset,
            truth="original",
            category=category,
            severity=severity,
            basis=basis,
            slice=name,
            n=n,
            of=of,
            value=n / of,
            low=max(0.0, n / of - 0.02),
            high=min(1.0, n / of + 0.02),
            interval="wilson",
            level=0.95,
            testset_hash=HASH,
            predictions_hash=HASH[::-1],
        )

    found = []
    for place, model in enumerate(models):
        numbers = {c: 2 * (5 + 3 * k + place) for k, c in enumerate(categories)}
        for category, n in numbers.items():
            found.append(one(model, category, "all", "all", n, "all"))
            found.append(one(model, category, "Major", "judged", n // 2, "all"))
            found.append(one(model, category, "unjudged", "proposed", n // 2, "all"))
        total = sum(numbers.values())
        for severity, basis in (
            ("all", "all"),
            ("Major", "all"),
            ("unjudged", "all"),
            ("all", "judged"),
            ("all", "proposed"),
        ):
            n = total if (severity, basis) == ("all", "all") else total // 2
            found.append(one(model, "all", severity, basis, n, "all"))
        for values in slices:
            name = format_slice(values)
            found.append(one(model, "all", "all", "all", total, name))
            found += [one(model, c, "all", "all", n, name) for c, n in numbers.items()]
    return found


def discovered(model: str, testset: str, at: str) -> list[Summary]:
    """A search that found one slice."""
    base = Summary(
        model=model,
        testset=testset,
        truth="original",
        metric="top1",
        columns="",
        name="searched",
        n=99,
        value=None,
        reason="99 slices were searched, corrected by permutation",
    )
    columns = "&".join(parse_slice(at))
    here = replace(base, columns=columns, at=at, n=40, reason=None)
    return [
        base,
        replace(here, name="discovered", value=0.25, low=0.1, high=0.5, interval="x", level=0.95),
        replace(here, name="discovered_rest", value=0.8),
        replace(here, name="discovered_p", value=0.004),
    ]


def card(text: str, **fields: Any) -> MistakeCard:
    """A single mistake in which every text is the given one."""
    given: dict[str, Any] = {
        "testset": "new",
        "image_id": text,
        "right": (text,),
        "predicted": text,
        "category": "Fine-grained error",
        "severity": "Major",
        "basis": "judged",
        "evidence": (text,),
        "columns": (text,),
        "models": (text,),
        "suggestion": text,
        "aside": text,
        "of_models": 2,
    }
    return MistakeCard(**given | fields)


HOSTILE = (
    "</script><script>window.hit=1</script>",
    "\"'><img src=x onerror=window.hit=1>",
    "__proto__",
    "constructor",
    "{{ 7 * 7 }}{% raw %}",
    "');window.hit=1;('",
    "datum['x'] \\ \n \u2028 line",
    "=HYPERLINK(1)",
    "x" * 300,
)


def hostile() -> ReportData:
    """Every text that the data can bring into the page is an attempt to break out of it."""
    tests = (HOSTILE[0], HOSTILE[1], "__proto__")
    whole = scores(HOSTILE, tests, metrics=("top1", HOSTILE[5]))
    slices = [{HOSTILE[0]: value} for value in HOSTILE] + [{HOSTILE[2]: k} for k in range(4)]
    slices += [{HOSTILE[1]: v, HOSTILE[5]: w} for v in HOSTILE[:3] for w in HOSTILE[:3]]
    first = whole[0]
    records: list[Record] = [*whole, *fits(whole, tests[0])]
    records += slice_scores(HOSTILE, tests[0], slices)
    records += [
        Comparison(
            model=HOSTILE[0],
            other=HOSTILE[1],
            testset=tests[0],
            truth=HOSTILE[0],
            metric="top1",
            n=first.n,
            difference=0.1,
            test=HOSTILE[0],
        ),
        Count(name=HOSTILE[0], value=1, model=HOSTILE[1], testset=HOSTILE[5]),
    ]
    records += [
        Summary(
            model=model,
            testset=tests[0],
            truth="original",
            metric="top1",
            columns=column,
            name=name,
            n=3,
            value=0.5,
            at=HOSTILE[0],
            reason=HOSTILE[1],
        )
        for model in (None, *HOSTILE)
        for column in (HOSTILE[0], HOSTILE[2])
        for name in ("mix", "area", "critical_value", "worst_value", HOSTILE[5])
    ]
    records += [
        Comparison(
            model=HOSTILE[0],
            other=HOSTILE[1],
            testset=tests[0],
            truth="original",
            metric="top1",
            slice=format_slice({HOSTILE[2]: k}),
            n=3,
            difference=0.1,
            p=0.01,
            test=HOSTILE[0],
        )
        for k in range(4)
    ]
    records += tallies(HOSTILE, tests[0], categories=HOSTILE[:4], slices=slices)
    records += discovered(HOSTILE[0], tests[0], format_slice({HOSTILE[0]: HOSTILE[1]}))
    records += [score(model, tests[0], 3, 4, metric="top1_minor") for model in HOSTILE]
    return ReportData(
        title=HOSTILE[0],
        records=records,
        columns={tests[0]: {HOSTILE[2]: ColumnType(kind="circular", period=4, unit=HOSTILE[0])}},
        provenance=[{"testset": HOSTILE[0], HOSTILE[1]: HOSTILE[5]}, {"model": HOSTILE[0]}],
        warnings=list(HOSTILE),
        notes=list(HOSTILE),
        settings={"command": HOSTILE[0], HOSTILE[1]: HOSTILE[0]},
        examples=[
            Example(
                testset=tests[0],
                column=HOSTILE[2],
                value=text,
                image="data:image/gif;base64,R0lGODlhAQABAAAAACw=",
                alt=text,
            )
            for text in HOSTILE
        ],
        mistakes=[
            card(text, testset=tests[0], category=text, severity=text, image=PIXEL)
            for text in HOSTILE
        ],
        baseline=tests[0],
    )
