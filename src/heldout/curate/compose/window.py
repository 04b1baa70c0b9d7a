"""The part of a sprite that lies in an image."""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """Pixels of the image that a sprite's box has in common with it; right and bottom are the
    first ones past it."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def empty(self) -> bool:
        """Whether nothing of the sprite lies in the image."""
        return self.right <= self.left or self.bottom <= self.top

    @property
    def size(self) -> tuple[int, int]:
        """Width and height; meaningless where it is empty."""
        return self.right - self.left, self.bottom - self.top

    @property
    def slices(self) -> tuple[slice, slice]:
        """Where it lies in the image's array: rows, columns."""
        return slice(self.top, self.bottom), slice(self.left, self.right)

    def within(self, left: int, top: int) -> tuple[slice, slice]:
        """Where it lies in the array of a sprite whose corner is at ``left``, ``top``."""
        return (
            slice(self.top - top, self.bottom - top),
            slice(self.left - left, self.right - left),
        )


def window_of(left: int, top: int, size: tuple[int, int], frame: tuple[int, int]) -> Window:
    """Where a sprite of ``size`` (width, height) at ``left``, ``top`` lies in ``frame``.

    >>> window_of(-2, 3, (5, 5), (10, 6))
    Window(left=0, top=3, right=3, bottom=6)
    """
    return Window(
        max(left, 0), max(top, 0), min(left + size[0], frame[0]), min(top + size[1], frame[1])
    )
