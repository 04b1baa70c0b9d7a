"""Which backgrounds an object is put on: the original's draw, number for number."""

from __future__ import annotations

import numpy as np

from heldout.core.errors import UserError


def pair_backgrounds(
    foregrounds: int, backgrounds: int, *, per_object: int, seed: int
) -> tuple[tuple[int, int], ...]:
    """(foreground, background) pairs: ``per_object`` different backgrounds for each foreground.

    For each foreground in turn ``choice(backgrounds, per_object, replace=False)`` of NumPy's
    legacy generator, whose numbers are frozen; ``seed`` is what ``numpy.random.seed`` is given
    (from 2**32 on, its words of 32 bits).
    """
    if per_object < 1:
        raise UserError(f"--backgrounds-per-object is {per_object}", fix="give 1 or more")
    if per_object > backgrounds:
        raise UserError(
            f"{per_object} backgrounds for each object were asked for, and there are {backgrounds}",
            fix=f"give --backgrounds-per-object {backgrounds} or fewer, or add backgrounds",
        )
    if seed < 0:
        raise UserError(f"--seed is {seed}", fix="give 0 or more")
    words = [seed] if seed < 2**32 else _words(seed)
    random = np.random.RandomState(words[0] if len(words) == 1 else words)
    return tuple(
        (foreground, int(background))
        for foreground in range(foregrounds)
        for background in random.choice(backgrounds, per_object, replace=False)
    )


def _words(seed: int) -> list[int]:
    words = []
    while seed:
        words.append(seed & 0xFFFFFFFF)
        seed >>= 32
    return words
