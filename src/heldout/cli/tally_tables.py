"""Tallies of mistakes as a table: a row a category, a column a model."""

from __future__ import annotations

from collections.abc import Sequence

from heldout.cli.console import print_table
from heldout.measure.score.records import Tally

_ALL = "all"
_MOST_MODELS = 8


def show_tallies(records: Sequence[Tally]) -> None:
    """Mistakes on whole test sets: every category, and what people judged Major; models beside."""
    groups: dict[tuple[str, str], list[Tally]] = {}
    for record in records:
        if record.slice == _ALL and record.model is not None:
            groups.setdefault((record.testset, record.truth), []).append(record)
    for (testset, truth), found in groups.items():
        cells = {(r.category, r.model): r for r in found if (r.severity, r.basis) == (_ALL, _ALL)}
        major = {
            r.model: r for r in found if (r.category, r.severity, r.basis) == (_ALL, "Major", _ALL)
        }
        models = list(dict.fromkeys(r.model for r in found))
        categories = [c for c in dict.fromkeys(r.category for r in found) if c != _ALL]
        rows = [
            [name, *(_cell(cells.get((name, model))) for model in models[:_MOST_MODELS])]
            for name in [*categories, _ALL]
        ]
        if major:
            rows.append(
                ["judged Major", *(_cell(major.get(model)) for model in models[:_MOST_MODELS])]
            )
        more = len(models) - _MOST_MODELS
        print_table(
            f"mistakes on {testset}, truth {truth}: number, and percent of images"
            + (f" ({more} models more: --json)" if more > 0 else ""),
            ["category", *(str(model) for model in models[:_MOST_MODELS])],
            rows,
        )


def _cell(record: Tally | None) -> str:
    if record is None:
        return ""
    share = "" if record.value is None else f" {100 * record.value:.2f}"
    if record.low is None or record.high is None:
        return f"{record.n:,}{share}"
    return f"{record.n:,}{share} [{100 * record.low:.2f}, {100 * record.high:.2f}]"
