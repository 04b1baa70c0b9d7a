"""Work functions that worker processes can import, and a script that runs a job to be killed."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path

from heldout.core.engine import Job, Processes, Serial, Shard, Threads, Unit, run, unit_key
from heldout.core.files import canonical_json
from heldout.data.images import ImageSource, examine


def units(count: int, *, slow: float = 0.0, tag: str = "") -> list[Unit]:
    return [Unit(unit_key("digest-1", n=n, tag=tag), {"n": n, "slow": slow}) for n in range(count)]


def expected(payload: dict[str, float]) -> bytes:
    return b"".join(hashlib.sha256(f"{payload['n']}-{i}".encode()).digest() for i in range(64))


def digest(payload: dict[str, float]) -> bytes:
    time.sleep(payload["slow"])
    return expected(payload)


def digest_folder(payload: dict[str, float], folder: Path) -> None:
    (folder / "a.bin").write_bytes(expected(payload))
    time.sleep(payload["slow"])
    (folder / "deep").mkdir()
    (folder / "deep" / "b.txt").write_text(str(payload["n"]))


def fail_on_odd(payload: dict[str, float]) -> bytes:
    if payload["n"] % 2:
        raise ValueError(f"odd\nnumber {payload['n']}")
    return expected(payload)


def die_on_seven(payload: dict[str, float]) -> bytes:
    if payload["n"] == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(payload["slow"])
    return expected(payload)


def no_room(payload: dict[str, float]) -> bytes:
    raise OSError(28, "No space left on device")


class Examine:
    """Work that carries its source, and is sent to each worker once."""

    def __init__(self, source: ImageSource) -> None:
        self.source = source

    def __call__(self, image_id: str) -> bytes:
        return canonical_json(asdict(examine(self.source, image_id))).encode()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file of a job but its lock: what two runs must agree on."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "lock"
    }


def main(runs: str, output: str, executor: str, count: str, slow: str, shard: str) -> None:
    job = Job(name="job", work=digest_folder if output == "folder" else digest, output=output)
    summary = run(
        job,
        iter(units(int(count), slow=float(slow))),
        runs=Path(runs),
        executor={
            "serial": Serial,
            "threads": lambda: Threads(2),
            "processes": lambda: Processes(2),
        }[executor](),
        shard=Shard.parse(shard),
    )
    print(summary.made, summary.found, summary.failed)


if __name__ == "__main__":
    main(*sys.argv[1:])
