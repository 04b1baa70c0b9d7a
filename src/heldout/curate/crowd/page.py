"""The page on which a grid is answered: plain HTML, which needs no cookies and no server of ours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from heldout.curate.crowd.backend import GridTask


def grid_page(task: GridTask, addresses: Sequence[str], *, action: str) -> str:
    """The page of a task as HTML.

    ``addresses``  where its images are, in the order of its tokens
    ``action``     the address that its form is sent to

    The form has the fields ``assignmentId``, which a few lines of script take from the page's own
    address as MTurk wants it, ``grid``, and one ``selected`` for each image that was selected.
    """
    # The first names only: WordNet's names are synonyms, all of them part of the question.
    names = " or ".join(task.asked.names or (task.asked.id,))
    shown = zip(task.tokens, addresses, strict=True)
    page: str = _template().render(
        asked=task.asked,
        names=names,
        grid=task.grid,
        action=action,
        images=[{"token": token, "address": address} for token, address in shown],
    )
    return page


@cache
def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("grid.html")
