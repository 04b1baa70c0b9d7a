"""The pictures of docs/compose.md, made by the code that they show.

    python tools/compose_pictures.py [WORKSPACE]

runs the demonstration, in a folder that it then removes unless one is named, and takes under a minute.
Everything comes from the photographs that install with scikit-image, so that anybody can make them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from heldout.cli.app import invoke
from heldout.curate.compose.factors import Factors
from heldout.curate.compose.inputs import Inputs, gather_backgrounds, gather_foregrounds, inputs_of
from heldout.curate.compose.requests import load_request
from heldout.data.testset import TestSet, load
from heldout.measure.evaluation.demonstration import BACKDROPS

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
PICTURES = Path(__file__).parents[1] / "docs" / "images"
SIDE, GAP, LINE = 132, 6, 18
CURVES = {
    "slices-demo-size-1-size": "compose-size",
    "slices-demo-location-1-x-y": "compose-location",
    "slices-demo-rotation-1-rotation": "compose-rotation",
}
PLACES = ((0.05, 0.05), (0.2, 0.5), (0.5, 0.5), (0.8, 0.5), (0.95, 0.5), (0.5, 0.95), (0.95, 0.95))
SHOWN: tuple[tuple[str, Mapping[str, float | str], int], ...] = (  # caption, values, background
    ("plain", {}, 2),
    ("occlusion 0.5", {"occlusion": 0.5, "occlusion_kind": "patches"}, 2),
    ("distractors 2", {"distractors": 2}, 2),
    ("tilt_y 45", {"tilt_y": 45}, 2),
    ("shear 0.5", {"shear": 0.5}, 2),
    ("shadow 0.5", {"shadow": 0.5}, 1),
    ("background.blur 8", {"background.blur": 8}, 2),
    ("foreground.brightness", {"foreground.brightness": 0.4}, 2),
    ("temperature 3500", {"temperature": 3500}, 2),
    ("background.greyscale", {"background.greyscale": 1}, 2),
    ("texture shuffled", {"texture": "shuffled"}, 2),
    ("variant only_fg", {"variant": "only_fg"}, 2),
    ("variant no_fg", {"variant": "no_fg"}, 2),
    ("backdrop noise", {"backdrop": "noise"}, 2),
    ("foreground.noise", {"foreground.noise": 0.18}, 2),
    ("blending feather", {"blending": "feather", "feather_radius": 6}, 2),
    ("blending poisson", {"blending": "poisson"}, 1),
    ("downsample 8", {"downsample": 8}, 2),
)


def font() -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size=12)


def rows_picture(rows: Sequence[tuple[str, Sequence[tuple[str, Image.Image]]]]) -> Image.Image:
    """Rows of small pictures with a caption below each and a title above each row."""
    columns = max(len(cells) for _, cells in rows)
    height = SIDE + 2 * LINE + GAP
    sheet = Image.new("RGB", (columns * (SIDE + GAP) + GAP, len(rows) * height), "white")
    pen = ImageDraw.Draw(sheet)
    for row, (title, cells) in enumerate(rows):
        top = row * height
        pen.text((GAP, top + 2), title, fill="black", font=font())
        for column, (caption, image) in enumerate(cells):
            left = GAP + column * (SIDE + GAP)
            small = image.convert("RGB").resize((SIDE, SIDE), Image.Resampling.LANCZOS)
            sheet.paste(small, (left, top + LINE))
            pen.text((left, top + LINE + SIDE + 1), caption, fill="#555", font=font())
    return sheet


def strip(
    testset: TestSet, columns: Sequence[str], values: Sequence[Sequence[float]], name: str
) -> list[tuple[str, Image.Image]]:
    """Images of one object on one background, at these values."""
    found = []
    rows = testset.images.to_pylist()
    ground = next(row["background"] for row in rows if row["object"].startswith(name))
    for wanted in values:
        row = next(
            row
            for row in rows
            if row["object"].startswith(name)
            and row["background"] == ground
            and [row[column] for column in columns] == list(wanted)
        )
        with Image.open(testset.images_folder() / row["path"]) as image:
            found.append((", ".join(f"{value:g}" for value in wanted), image.convert("RGB")))
    return found


def sets_picture(workspace: Path) -> Image.Image:
    """Cut-outs and backgrounds, then what is made of them."""
    inputs = workspace / "inputs"
    cells = []
    for path in sorted((inputs / "cutouts").glob("*/*.png")):
        with Image.open(path) as image:
            cutout = image.convert("RGBA")
        square = Image.new("RGBA", (max(cutout.size),) * 2, (236, 236, 236, 255))
        corner = tuple((s - c) // 2 for s, c in zip(square.size, cutout.size, strict=True))
        square.alpha_composite(cutout, (corner[0], corner[1]))
        cells.append((path.parent.name, square))
    for ground in BACKDROPS[:3]:
        with Image.open(inputs / "backgrounds" / f"{ground.name}.png") as image:
            cells.append((ground.name, image.convert("RGB")))
    size, place, turn = (
        load(workspace / "testsets" / f"demo-{kind}-1") for kind in ("size", "location", "rotation")
    )
    return rows_picture(
        [
            ("cut-outs and backgrounds", cells),
            ("size", strip(size, ["size"], [[v] for v in (0.01, 0.02, 0.06, 0.1, 0.2, 0.3, 0.4)], "cup")),
            (
                "location (x, y)",
                strip(
                    place,
                    ["x", "y"],
                    PLACES,
                    "shuttle",
                ),
            ),
            (
                "rotation",
                strip(turn, ["rotation"], [[v] for v in (1, 41, 101, 141, 181, 241, 321)], "cat"),
            ),
        ]
    )  # fmt: skip


def factors_picture(inputs: Inputs) -> Image.Image:
    """One object under factors beyond SI-SCORE."""
    from factor_sheet import show

    known = Factors.load()
    cells = []
    for caption, values, ground in SHOWN:
        checked = {known.canonical(key): known[key].check(value) for key, value in values.items()}
        made, _ = show(
            inputs,
            known.without_neutral(checked),
            foreground=1,
            background=ground,
            side=384,
            area=0.3,
            factors=known,
        )
        cells.append((caption, Image.fromarray(made)))
    return rows_picture([("", cells[start : start + 6]) for start in range(0, len(cells), 6)])


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        place = Path(sys.argv[1] if len(sys.argv) > 1 else f"{name}/demo")
        if invoke(["demo", "--workspace", str(place)]):
            return 1
        figures = Path(name) / "figures"
        run = place / "runs/demo"
        report = ["report", f"{run}/scores.json", "--to", f"{name}/report.html"]
        if invoke([*report, "--figures", str(figures), "--workspace", str(place)]):
            return 1
        for made, wanted in CURVES.items():
            (PICTURES / f"{wanted}.svg").write_bytes((figures / f"{made}.svg").read_bytes())
        request = load_request(place / "inputs/demo-size-1.toml")
        inputs = inputs_of(
            gather_foregrounds(request.foregrounds, labels=request.labels)[0],
            gather_backgrounds(request.backgrounds)[0],
        )
        for title, picture in (("sets", sets_picture(place)), ("factors", factors_picture(inputs))):
            picture.save(PICTURES / f"compose-{title}.jpg", quality=85, optimize=True)
    for path in sorted(PICTURES.glob("compose-*")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
