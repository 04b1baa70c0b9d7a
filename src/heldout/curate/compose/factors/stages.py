"""The order in which factors act on an image: fixed, whatever the order in a configuration.

Within a stage the order is the one in which the factors are registered: built-in ones as the
documentation lists them, then plug-ins by name.
"""

from __future__ import annotations

from enum import IntEnum


class Stage(IntEnum):
    """Where a factor acts.

    ``PLAN``         the size of the sprite, decided before any pixels
    ``FOREGROUND``   colours of the object, in its own frame
    ``GEOMETRY``     outline and place of the object
    ``COMPOSITION``  further sprites: copies, distractors, occluders
    ``BACKGROUND``   what stands behind, and its colours
    ``BLEND``        how the object meets the background
    ``IMAGE``        the whole image
    ``ENCODING``     the bytes of the file
    """

    PLAN = 0
    FOREGROUND = 1
    GEOMETRY = 2
    COMPOSITION = 3
    BACKGROUND = 4
    BLEND = 5
    IMAGE = 6
    ENCODING = 7
