"""The engine over an image source: how the rooms after it use the two together."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from engine_work import Examine
from PIL import Image

from heldout.core.engine import Executor, Job, Processes, Serial, Threads, Unit, run, unit_key
from heldout.data.images import TarSource


def jpeg(width: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, 8), (width, 0, 0)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.mark.parametrize("executor", [Serial(), Threads(3), Processes(2)])
def test_every_image_is_examined_and_bad_ones_are_answers_too(
    executor: Executor, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "images.tar", "w") as archive:
        for n in range(12):
            data = jpeg(10 + n) if n % 5 else b"no image"
            info = tarfile.TarInfo(f"{n:02}.jpg")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    source = TarSource(tmp_path / "images.tar")
    units = [Unit(unit_key("examine-1", image=image_id), image_id) for image_id in source.ids()]
    summary = run(
        Job(name="examine", work=Examine(source)), units, runs=tmp_path, executor=executor
    )
    assert (summary.made, summary.failed) == (12, 0)
    texts = [summary.results.read(unit.key).decode() for unit in units]
    assert [f'"width":{10 + n}' in text for n, text in enumerate(texts)] == [
        n % 5 != 0 for n in range(12)
    ]
    assert ['"trouble":"unsupported"' in text for text in texts] == [n % 5 == 0 for n in range(12)]
