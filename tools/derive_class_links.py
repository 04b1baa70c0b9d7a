"""Derive the Wikipedia pages of ImageNet-1k's classes from ImageNetV2's ``wikipedia_pages.json`` (MIT).

    python tools/derive_class_links.py wikipedia_pages.json [--check]

Made is ``src/heldout/data/labels/data/wikipedia-1k.tsv.gz``: one class per row, sorted by WordNet id,
with its titles joined by ``|``. Names and meanings of the classes are in ``wordnet-1k.tsv.gz``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path

from derive_labels import compressed

from heldout.data.labels.wordnet import DATA, WIKIPEDIA, WIKIPEDIA_PAGES


def table(path: Path) -> str:
    """The rows of the table, from the published ``{wnid: [address]}``."""
    rows = []
    for wnid, pages in sorted(json.loads(path.read_text()).items()):
        titles = [page.removeprefix(WIKIPEDIA) for page in pages]
        if not titles or any(set(title) & set("|\t\n ") for title in titles):
            sys.exit(f"{wnid}: {pages} are not pages of {WIKIPEDIA}")
        rows.append(f"{wnid}\t{'|'.join(titles)}\n")
    return "".join(rows)


def main() -> None:
    """Write or check the table."""
    parser = argparse.ArgumentParser(description="Make the table of Wikipedia pages.")
    parser.add_argument("pages", type=Path, help="wikipedia_pages.json")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    text, path = table(options.pages), DATA / WIKIPEDIA_PAGES
    if not options.check:
        path.write_bytes(compressed(text))
    elif gzip.decompress(path.read_bytes()) != text.encode():
        sys.exit(f"{path}: differs from what {options.pages} gives")


if __name__ == "__main__":
    main()
