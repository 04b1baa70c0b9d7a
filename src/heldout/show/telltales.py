"""The page of ``diff --features``: images that give a set away, and images that pass for the other."""

from __future__ import annotations

from heldout import __version__
from heldout.core.context import Context, Result
from heldout.core.files import write_text
from heldout.curate.discriminator import Telltale, ToldApart
from heldout.data.requests import DiffRequest
from heldout.show.embed import render
from heldout.show.thumbnails import thumbnails
from heldout.show.wording import count, percent

MOST = 30
"""Images of a set in one gallery."""


def render_telltales(told: ToldApart) -> str:
    """The page's HTML: one file that needs nothing but itself, and no script at all."""
    found, sets = told.found, told.sets
    of_set = [told.telltales[: found.images], told.telltales[found.images :]]
    most = min(MOST, found.images // 2)
    chosen = [
        ("away", "Images that give a set away", [each[:most] for each in of_set]),
        ("other", "Images that pass for the other set", [each[::-1][:most] for each in of_set]),
    ]
    small = [
        thumbnails(
            testset, [one.image_id for *_, sides in chosen for one in sides[place]], side=160
        )
        for place, testset in enumerate(sets)
    ]

    def shown(one: Telltale, place: int) -> tuple[Telltale, str]:
        return one, small[place].get(one.image_id, "")

    return render(
        "telltales.html.j2",
        "report.css",
        title=f"{found.a} or {found.b}?",
        found=found,
        tiles=[
            ("right answers", f"{percent(found.value)} %"),
            ("images of each set", count(found.images)),
            *([("classes", count(found.classes))] if found.classes else []),
        ],
        galleries=[
            (
                id,
                title,
                [[shown(one, 0), shown(other, 1)] for one, other in zip(*sides, strict=True)],
            )
            for id, title, sides in chosen
        ],
        version=__version__,
    )


def draw(request: DiffRequest, result: Result, context: Context) -> None:
    """Write the page where a file for it is named."""
    if request.out is not None:
        write_text(request.out, render_telltales(result.drawn))
        context.say(f"wrote {request.out}")
