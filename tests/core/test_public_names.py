"""The names of the package's front: what completion shows is what there is."""

from __future__ import annotations

import heldout


def test_completion_shows_the_public_names_and_each_of_them_loads() -> None:
    assert dir(heldout) == sorted(heldout.__all__)
    for name in dir(heldout):
        assert getattr(heldout, name) is not None
