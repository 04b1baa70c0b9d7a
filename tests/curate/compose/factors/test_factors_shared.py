"""Factors on the published cut-outs and backgrounds."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from heldout.testing.compose import InMemoryInputs

from .factor_examples import FACTORS

show = runpy.run_path(str(Path(__file__).parents[4] / "examples" / "factor_sheet.py"))["show"]


@pytest.fixture(scope="module")
def published(shared_data: Path) -> InMemoryInputs:
    cutouts = sorted(shared_data.glob("siscore/foreground_samples/*/*"))
    backgrounds = sorted(shared_data.glob("siscore/background_samples/*"))
    pictures = [Image.open(path).convert("RGB").crop((0, 0, 400, 400)) for path in backgrounds]
    return InMemoryInputs(
        cutouts=[np.asarray(Image.open(path).convert("RGBA")) for path in cutouts],
        cutout_classes=[path.parent.name for path in cutouts],
        backgrounds=[np.asarray(picture.resize((256, 256))) for picture in pictures],
        background_classes=[None] * len(backgrounds),
    )


pytestmark = pytest.mark.shared


def test_sizes_by_mask_are_equal_in_pixels(published: InMemoryInputs) -> None:
    by_box, by_mask = [], []
    for i in range(len(published.cutouts)):
        for values, found in (({}, by_box), ({"size_by": "mask"}, by_mask)):
            _, seen = show(published, values, foreground=i, area=0.2, factors=FACTORS)
            found.append(seen["mask_fraction"])
    assert max(by_box) / min(by_box) > 1.25
    assert max(by_mask) / min(by_mask) < 1.03
    assert np.allclose(by_mask, 0.2, rtol=0.03)


@pytest.mark.parametrize("kind", ["bars", "patches", "border", "cutout"])
def test_occlusion_of_published_objects(published: InMemoryInputs, kind: str) -> None:
    for i in range(len(published.cutouts)):
        for share in (0.1, 0.33, 0.6, 0.95):
            _, seen = show(
                published,
                {"occlusion": share, "occlusion_kind": kind},
                foreground=i,
                seed=i,
                factors=FACTORS,
                keys=["occlusion"],
            )
            assert seen["occlusion_measured"] == pytest.approx(share, abs=0.01)
            assert seen["visible_fraction"] == pytest.approx(1 - share, abs=0.011)


def test_the_photograph_under_alpha_0_stays_hidden(published: InMemoryInputs) -> None:
    """These files keep the whole photograph under alpha 0: it must not bleed into any edge."""
    plain = published.cutouts[1].copy()
    plain[..., :3][plain[..., 3] == 0] = (255, 0, 255)
    other = replace(published, cutouts=[published.cutouts[0], plain, *published.cutouts[2:]])
    for values in (
        {"foreground.blur": 4.0},
        {"foreground.downsample": 8.0},
        {"foreground.jpeg": 10},
        {"shear": 0.4, "tilt_y": 40.0},
        {"offset_x": 0.5},
        {"texture": "shuffled"},
        {"blending": "poisson"},
        {"blending": "feather"},
        {"foreground.contrast": 0.3},
    ):
        pair = [
            show(inputs, values, foreground=1, factors=FACTORS)[0] for inputs in (published, other)
        ]
        assert (pair[0] == pair[1]).all(), values
