"""Contact sheets: every cut-out on a checkerboard and on a colour, with what the check says.

A sheet is for looking: HTML with a button to keep or drop each cut-out, which gives the CSV that
``heldout cutout --review`` takes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from heldout.core.files import write_text

if TYPE_CHECKING:
    from heldout.curate.cutouts.make import ListedCutout

SIDE = 160
"""Pixels of one view; a thumbnail is two views side by side."""
PER_SHEET = 240
_SQUARE = 10
_COLOUR = (255, 0, 200)  # rare in photos, so that what is left of a background stands out


def thumbnail(pixels: np.ndarray) -> bytes:
    """A cut-out (h, w, 4) uint8 on a checkerboard and on a colour, as a JPEG of 2 × SIDE by SIDE."""
    from PIL import Image

    views = Image.new("RGB", (2 * SIDE, SIDE), _COLOUR)
    squares = np.indices((SIDE, SIDE)) // _SQUARE
    light = np.where(squares.sum(axis=0) % 2 == 0, 255, 205).astype(np.uint8)
    views.paste(Image.fromarray(light).convert("RGB"), (0, 0))
    if pixels.size:
        small = Image.fromarray(pixels)
        small.thumbnail((SIDE - 8, SIDE - 8), Image.Resampling.BOX)
        at = (SIDE - small.width) // 2, (SIDE - small.height) // 2
        views.paste(small, at, small)
        views.paste(small, (at[0] + SIDE, at[1]), small)
    handle = io.BytesIO()
    views.save(handle, "JPEG", quality=88)
    return handle.getvalue()


def write_sheets(
    folder: Path, cutouts: Sequence[ListedCutout], thumbnails: Mapping[str, Path]
) -> int:
    """Write ``sheet-001.html`` and so on, flagged cut-outs first; how many sheets.

    ``thumbnails``  files that :func:`thumbnail` has made, by ``cutout.file``
    """
    ordered = sorted(cutouts, key=lambda c: (c.used, c.file))
    pages = [ordered[i : i + PER_SHEET] for i in range(0, len(ordered), PER_SHEET)]
    for number, page in enumerate(pages, 1):
        title = f"Cut-outs, sheet {number} of {len(pages)}"
        write_text(folder / f"sheet-{number:03}.html", _page(title, page, thumbnails))
    return len(pages)


def _page(title: str, cutouts: Sequence[ListedCutout], thumbnails: Mapping[str, Path]) -> str:
    used = sum(cutout.used for cutout in cutouts)
    cards = "\n".join(_card(cutout, thumbnails[cutout.file].read_bytes()) for cutout in cutouts)
    script, style = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for text in (_SCRIPT, _STYLE)
    )
    policy = (
        f"default-src 'none'; img-src data:; script-src 'sha256-{script}'; "
        f"style-src 'sha256-{style}'"
    )
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width">
<title>{html.escape(title)}</title>
<style>{_STYLE}</style>
<header><h1>{html.escape(title)}</h1>
<p>{used} used, {len(cutouts) - used} set aside. Mark what the gate got wrong, save the marks, and run
the same command again with <code>--review review.csv --replace</code>.
<button id="save" type="button">Save review.csv</button> <output id="count"></output></p></header>
<main>
{cards}
</main>
<script>{_SCRIPT}</script>
</html>
"""


def _card(cutout: ListedCutout, thumbnail: bytes) -> str:
    data = base64.b64encode(thumbnail).decode()
    file = html.escape(cutout.file, quote=True)
    measures = cutout.measures
    facts = (
        f"{cutout.box[2]} × {cutout.box[3]} px, {measures.mask_fraction:.1%} of the photo, "
        f"{measures.parts} part{'' if measures.parts == 1 else 's'}, "
        f"border {measures.border_fraction:.0%}, edge {measures.edge_confidence:.2f}"
    )
    reasons = "".join(f"<li>{html.escape(reason)}</li>" for reason in cutout.reasons)
    buttons = (
        '<button type="button" value="keep">keep</button>'
        '<button type="button" value="drop">drop</button>'
        if cutout.sha256
        else ""
    )
    return (
        f'<article class="{cutout.verdict}" data-file="{file}">'
        f'<img width="{2 * SIDE}" height="{SIDE}" alt="{file}" src="data:image/jpeg;base64,{data}">'
        f"<h2>{file}</h2><p><b>{cutout.verdict}</b> {facts}</p><ul>{reasons}</ul>{buttons}</article>"
    )


_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1rem; color: #111; background: #fff }
h1 { font-size: 1.2rem }
main { display: flex; flex-wrap: wrap; gap: 12px }
article { width: 320px; border: 2px solid #146e28; padding: 6px }
article.flagged, article.dropped { border-color: #b41e14 }
article.flagged b, article.dropped b { color: #b41e14 }
h2 { font-size: 13px; margin: 4px 0; overflow-wrap: anywhere }
p, ul { margin: 2px 0; font-size: 12px }
img { max-width: 100%; height: auto }
button { margin: 4px 6px 0 0 }
button[aria-pressed=true] { background: #111; color: #fff }
"""

_SCRIPT = """
const marks = new Map();
const count = document.getElementById("count");
document.querySelector("main").addEventListener("click", event => {
  const button = event.target.closest("button");
  if (!button) return;
  const card = button.closest("article"), file = card.dataset.file;
  if (marks.get(file) === button.value) marks.delete(file); else marks.set(file, button.value);
  for (const other of card.querySelectorAll("button"))
    other.setAttribute("aria-pressed", String(marks.get(file) === other.value));
  count.textContent = marks.size ? marks.size + " marked" : "";
});
document.getElementById("save").addEventListener("click", () => {
  // No spreadsheet is to take a name for a formula; reading the file undoes this.
  const quote = text => '"' + text.replace(/^'*[=+\\-@]/, "'$&").replaceAll('"', '""') + '"';
  const rows = [...marks].sort().map(([file, verdict]) => quote(file) + "," + verdict);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([["file,verdict", ...rows].join("\\n") + "\\n"]));
  link.download = "review.csv";
  link.click();
});
"""
