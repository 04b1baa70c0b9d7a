"""SubpopBench's own split of groups: shares of all images, drawn at random over groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from heldout.core.errors import NotFound, UserError
from heldout.curate.contexts.names import parse_subset
from heldout.curate.contexts.split_groups import Ambiguous, Groups, without_ambiguous
from heldout.curate.contexts.splits import Split, SplitRow
from heldout.curate.contexts.subpopulation import LARGEST_SEED
from heldout.curate.contexts.subsets import hint


def shares_split(
    groups: Groups,
    order: Sequence[str],
    *,
    test: float = 0.25,
    validation: float = 0.1,
    seed: int = 42,
    ambiguous: Ambiguous = "refuse",
) -> Split:
    """Test and validation as shares of all images, whatever their group (SubpopBench's rule).

    Rows are numbered group by group in ``order``, ids sorted as texts. ``RandomState(seed)``
    chooses ``int(test * n)`` rows for the test, then ``int(validation * n)`` of the others, sorted,
    for validation. SubpopBench itself numbers files as its file system lists them, so sizes are as
    published (2,276, 349 and 874 of 3,499) and members are not. Rows of a part keep their order.
    """
    if not (0.0 < test < 1.0 and 0.0 <= validation < 1.0 and test + validation < 1.0):
        raise UserError(
            f"shares of {test} for the test and {validation} for validation",
            fix="leave some for training",
        )
    if not 0 <= seed <= LARGEST_SEED:
        raise UserError(f"a seed of {seed}", fix=f"give 0 to {LARGEST_SEED}")
    for group in order:
        if group not in groups.images:
            raise NotFound(f"no group {group!r}", fix=hint(group, groups.images))
    if not order or len(set(order)) < len(order):
        raise UserError("groups are missing or named twice", fix="name each once")
    images, notes = without_ambiguous(groups, order, policy=ambiguous)
    rows = [
        SplitRow(image, parse_subset(group).subject, group)
        for group in order
        for image in sorted(images[group])
    ]
    generator = np.random.RandomState(seed)
    tested = generator.choice(np.arange(len(rows)), size=int(len(rows) * test), replace=False)
    others = np.setdiff1d(np.arange(len(rows)), tested)
    kept = generator.choice(others, size=int(len(rows) * validation), replace=False)
    part = np.zeros(len(rows), dtype=np.int64)
    part[kept], part[tested] = 1, 2
    names = ("train", "validation", "test")
    parts = {
        name: tuple(rows[place] for place in np.flatnonzero(part == number).tolist())
        for number, name in enumerate(names)
    }
    if not parts["test"]:
        raise UserError(f"too few images: {len(rows)} leave none for the test", fix="give more")
    return Split(
        parts={name: members for name, members in parts.items() if members},
        rule={
            "name": "shares",
            "seed": seed,
            "groups": list(order),
            "test_share": test,
            "validation_share": validation,
            "ambiguous": ambiguous,
        },
        groups=groups.groups_of(),
        notes=(*groups.notes, *notes),
    )
