"""Two columns at once where one has hundreds of values: the figure keeps to the lowest."""

from __future__ import annotations

from heldout.measure.score.slices import format_slice
from heldout.show.exports import figures
from heldout.show.score_figures import all_figures
from heldout.show.view import ReportData, ReportView

from .records import score


def crossed(contexts: int) -> ReportData:
    records = [score("ant", "pets", 700, 1000)]
    for place in range(contexts):
        for light in ("day", "night"):
            name = format_slice({"subset": f"cat(c{place:03d})", "light": light})
            records.append(score("ant", "pets", 10 + place % 37, 50, slice=name))
    return ReportData(title="pets", records=records)


def test_the_lowest_values_are_drawn_downwards() -> None:
    spec = figures(crossed(200))["slices-pets-light-subset"]
    params = {param["name"]: param["value"] for param in spec["params"]}
    assert params["across"] == ["day", "night"]
    assert len(params["down"]) == 40
    drawn = {(row["at"], row["row"]): row["value"] for row in spec["data"]["values"]}
    assert len(drawn) == 80 and max(drawn.values()) <= min(
        (10 + p % 37) / 50 for p in range(200) if f"cat(c{p:03d})" not in params["down"]
    )
    (figure,) = [
        f for f in all_figures(ReportView(crossed(200))) if f.columns == ("light", "subset")
    ]
    assert "The 40 lowest of 200 values of subset." in figure.caption


def test_a_long_list_stands_downwards_whichever_column_it_is() -> None:
    records = [score("ant", "pets", 700, 1000)]
    for place in range(30):
        for size in ("big", "small"):
            name = format_slice({"around": f"word {place}", "size": size})
            records.append(score("ant", "pets", 20 + place, 60, slice=name))
    spec = figures(ReportData(title="pets", records=records))["slices-pets-around-size"]
    params = {param["name"]: param["value"] for param in spec["params"]}
    assert params["across"] == ["big", "small"] and len(params["down"]) == 30
