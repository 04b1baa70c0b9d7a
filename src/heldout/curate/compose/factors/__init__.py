"""Factors past the paper: what else of an image can be set on purpose, and measured.

A factor has a key, a neutral value that changes nothing, values to try, a stage at which it acts,
and a measured column. :class:`Factors` knows them all, plug-ins included; :func:`finish` makes an
image of layers; :func:`placed_box` and :func:`sprite_size` say where and how large an object will
be before any pixels.
"""

from __future__ import annotations

from heldout.curate.compose.factors import measures
from heldout.curate.compose.factors.accepts import Numbers, Words
from heldout.curate.compose.factors.draws import Draw
from heldout.curate.compose.factors.geometry import Outline, placed_box
from heldout.curate.compose.factors.joining import encoding_options, measured_encoding
from heldout.curate.compose.factors.outlines import sprite_size
from heldout.curate.compose.factors.pipeline import finish
from heldout.curate.compose.factors.pixel import PixelFactor, PixelFamily, Region, factor
from heldout.curate.compose.factors.protocol import Factor, Frame, Plain, Stock, Used
from heldout.curate.compose.factors.registry import GROUP, MEASURED, Factors
from heldout.curate.compose.factors.setting import Setting
from heldout.curate.compose.factors.stages import Stage

__all__ = [
    "GROUP",
    "MEASURED",
    "Draw",
    "Factor",
    "Factors",
    "Frame",
    "Numbers",
    "Outline",
    "PixelFactor",
    "PixelFamily",
    "Plain",
    "Region",
    "Setting",
    "Stage",
    "Stock",
    "Used",
    "Words",
    "encoding_options",
    "factor",
    "finish",
    "measured_encoding",
    "measures",
    "placed_box",
    "sprite_size",
]
