"""What checking costs: stored outputs, vectors and judgements read with their checksums and without.

Claim: under 2 % of the reading time for the logits of 50,000 images and 1,000 classes. Beside it two
other ways to check the same parts: Parquet's own page checksums, and one checksum of the whole file
where only the top k are read. Interleaved, the least CPU time, as other work on the machine counts
least there; files are in the page cache, where reading is fastest and a check costs most.

Run: ``python benchmarks/checksums.py``. Writes benchmarks/results/checksums.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from heldout.core.files import checksum, mapped
from heldout.data.judgements.judgement import Judgement
from heldout.data.judgements.store import JudgementStore
from heldout.data.labels import LabelSpace
from heldout.models.embeddings import Embeddings, read_embeddings, write_embeddings
from heldout.models.predictions import Predictions, PredictionStore
from machine import describe, write_result

Work = Callable[[], object]


def times(works: dict[str, Work], rounds: int) -> dict[str, float]:
    """Milliseconds of CPU time of each, the least over interleaved rounds."""
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            began = time.process_time()
            work()
            found[name].append(1e3 * (time.process_time() - began))
    return {name: min(values) for name, values in found.items()}


def parquet(parts: list[Path], columns: list[str], *, verify: bool) -> Work:
    """Reading parts that have page checksums."""
    return lambda: [
        pq.read_table(part, columns=columns, partitioning=None, page_checksum_verification=verify)
        for part in parts
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=25)
    asked = parser.parse_args()
    n, rng = asked.images, np.random.default_rng(0)
    ids = [f"image{i:06d}" for i in range(n)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store = PredictionStore(folder / "predictions")
        logits = rng.standard_normal((n, 1000), dtype=np.float32).astype(np.float16)
        made = Predictions(
            model="m",
            image_ids=pa.array(ids),
            topk=rng.integers(0, 1000, (n, 5)).astype(np.int32),
            logits=logits,
            label_space=LabelSpace.load("imagenet-1k"),
        )
        run = store.write(made, images_hash="0" * 64)
        bare = replace(run, files={})
        parts = sorted(run.folder.glob("part-*"))
        paged = [folder / part.name for part in parts]
        for part, copy in zip(parts, paged, strict=True):
            pq.write_table(
                pq.read_table(part, partitioning=None),
                copy,
                use_dictionary=False,
                compression="none",
                write_page_checksum=True,
            )
        vectors = folder / "vectors"
        values = rng.standard_normal((n, 512), dtype=np.float32)
        write_embeddings(vectors, Embeddings(ids, values))
        classes = values[:1000].T
        with JudgementStore(folder / "judgements.db") as judgements:
            judgements.add(
                Judgement(
                    question="label",
                    subject={"image_id": ids[i % n], "class_id": f"c{i}"},
                    answer="correct",
                    who=f"w{i % 50}",
                )
                for i in range(20_000)
            )

        def stream() -> None:
            with JudgementStore(folder / "judgements.db") as opened:
                sum(1 for _ in opened.stream())

        wide, narrow = ["image_id", "topk", "logits", "failure"], ["image_id", "topk", "failure"]
        table: dict[str, tuple[Work, Work]] = {
            "logits, checksum of each column": (lambda: store.read(bare), lambda: store.read(run)),
            "logits, Parquet's page checksums": (
                parquet(paged, wide, verify=False),
                parquet(paged, wide, verify=True),
            ),
            "top k, checksum of each column": (
                lambda: store.read(bare, values=False),
                lambda: store.read(run, values=False),
            ),
            "top k, Parquet's page checksums": (
                parquet(paged, narrow, verify=False),
                parquet(paged, narrow, verify=True),
            ),
            "top k, checksum of the whole file": (
                lambda: store.read(bare, values=False),
                lambda: [[checksum(mapped(p)) for p in parts], store.read(bare, values=False)],
            ),
            "vectors, 512 float32, compared with 1,000 classes": (
                lambda: np.load(vectors / "vectors.npy", mmap_mode="r") @ classes,
                lambda: read_embeddings(vectors).vectors @ classes,
            ),
        }
        rows = []
        for name, (without, checked) in table.items():
            found = times({"without": without, "with": checked}, asked.rounds)
            share = found["with"] / found["without"] - 1
            rows.append(f"| {name} | {found['without']:.1f} | {found['with']:.1f} | {share:+.1%} |")
        engine = times({"all": stream}, 5)["all"]
        opening = times({"open": lambda: JudgementStore(folder / "judgements.db").close()}, 5)[
            "open"
        ]
        rows.append(
            f"| 20,000 judgements, SQLite's check when opened | {engine - opening:.0f} | "
            f"{engine:.0f} | {engine / (engine - opening) - 1:+.1%} |"
        )
    write_result(
        "checksums",
        f"# What checking costs\n\n{describe('pyarrow', 'numpy')}. {n:,} images, 1,000 classes, logits "
        f"as float16; milliseconds of CPU time, the least of {asked.rounds} interleaved rounds, files "
        "in the page cache.\n\n| read | without | with | cost |\n|---|---:|---:|---:|\n"
        + "\n".join(rows)
        + "\n\nChosen: a checksum of each column's bytes. Parquet's page checksums leave the pages' own "
        "heads and the footer uncovered.\n",
    )


if __name__ == "__main__":
    main()
