"""A sprite that is laid on backgrounds many times."""

from __future__ import annotations

from typing import Any

from heldout.core.extras import require
from heldout.curate.compose.overlay import Overlay
from heldout.curate.compose.pyramid import unmultiplied
from heldout.curate.compose.scene import Pixels, Shot
from heldout.curate.compose.splice import Grid, Splicer
from heldout.curate.compose.tiling import Tiled
from heldout.curate.compose.window import Window, window_of


class Sprite:
    """Pixels (h, w, 4) BGRA, with what was made ready of them for the last place.

    Images that follow each other mostly differ in the background alone. Colours are premultiplied;
    ``total`` is the sum of alpha. Threads may share one: what they make for the same place is
    equal.
    """

    def __init__(self, bgra: Pixels) -> None:
        self._cv2: Any = require("cv2", extra="compose", purpose="the fast renderer")
        self._bgra = bgra
        self.size: tuple[int, int] = (bgra.shape[1], bgra.shape[0])
        self.total = int(self._cv2.sumElems(bgra)[3])
        self._overlay: tuple[tuple[slice, slice], Overlay] | None = None
        self._tiled: tuple[tuple[int, int, Grid], Tiled] | None = None

    @property
    def nbytes(self) -> int:
        """Memory that it may come to take."""
        return 4 * int(self._bgra.nbytes)

    @property
    def pixels(self) -> Pixels:
        """(h, w, 4) RGBA, straight alpha."""
        return unmultiplied(self._bgra)

    def measured(self, shot: Shot) -> dict[str, float]:
        """``mask_fraction`` and ``visible_fraction`` of a shot in which it is simply pasted."""
        window = self._window(shot)
        if window.empty:
            seen = 0
        elif window.size == self.size:
            seen = self.total
        else:
            seen = int(self._cv2.sumElems(self._bgra[window.within(*shot.box[:2])])[3])
        return {
            "mask_fraction": seen / 255 / (shot.width * shot.height),
            "visible_fraction": seen / self.total if self.total else 0.0,
        }

    def blend(self, image: Pixels, shot: Shot) -> None:
        """Lay it on the background of a shot, (H, W, 3) BGR, in place."""
        window = self._window(shot)
        if window.empty:
            return
        within = window.within(*shot.box[:2])
        known = self._overlay
        if known is None or known[0] != within:
            part = self._bgra[within]
            colour = self._cv2.cvtColor(part, self._cv2.COLOR_BGRA2BGR)
            alpha = self._cv2.extractChannel(part, 3)
            known = self._overlay = (within, Overlay(colour, alpha))
        below = image[window.slices].copy()
        known[1].onto(below)
        image[window.slices] = below

    def file(self, splicer: Splicer, shot: Shot) -> bytes:
        """The JPEG file of the splicer's background with it on top."""
        left, top = shot.box[:2]
        key = (left, top, splicer.grid)
        known = self._tiled
        if known is None or known[0] != key:
            window = self._window(shot)
            inside = self._bgra[:0] if window.empty else self._bgra[window.within(left, top)]
            tiled = Tiled(inside, window, splicer.grid)
            known = self._tiled = (key, tiled)
        return known[1].file(splicer)

    def _window(self, shot: Shot) -> Window:
        return window_of(*shot.box[:2], self.size, (shot.width, shot.height))
