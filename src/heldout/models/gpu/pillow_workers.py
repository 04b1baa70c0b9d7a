"""The exact path's pixels, made by Pillow in processes of their own.

Threads would share the interpreter's lock with the stages that feed the GPU, and a decoder that
crashes would take everything with it. A worker is a plain child process that reads encoded images
from its standard input: no module of the caller is imported again.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

import numpy as np

from heldout.data.images.decode import BadImage
from heldout.data.images.preprocessing import Geometry, pixels_of

_CHILD = "import sys; from heldout.models.gpu.pillow_workers import main; main(sys.argv[1:])"
UNREACHABLE = (ConnectionError, TimeoutError)
"""What a source raises that cannot be reached: that says nothing about an image, and is a fault."""
_REQUEST, _ANSWER = struct.Struct("<Q"), struct.Struct("<BQ")


class PillowWorkers:
    """Pixels of encoded images, exact to the bit; safe to use from several threads.

    ``processes``  workers; 0 decodes in the calling thread
    """

    def __init__(self, geometry: Geometry, *, processes: int) -> None:
        self.geometry = geometry
        self._workers: queue.Queue[PillowWorker] = queue.Queue()
        for _ in range(processes):
            self._workers.put(PillowWorker(geometry))
        self._processes = processes
        self._threads = ThreadPoolExecutor(max(processes, 2), "exact")

    def decode(self, data: bytes) -> np.ndarray | str:
        """uint8 (crop_height, crop_width, 3), or why there are no pixels."""
        if not self._processes:
            return _decoded(data, self.geometry)
        worker = self._workers.get()
        try:
            for _ in range(2):
                try:
                    return worker.ask(data)
                except (BrokenPipeError, EOFError):
                    worker.close()
                    worker = PillowWorker(self.geometry)
            return "broken: the decoder crashed on it, twice"
        finally:
            self._workers.put(worker)

    def submit(self, read: Callable[[], bytes]) -> Future[np.ndarray | str]:
        """Read and decode in the background."""
        return self._threads.submit(self._read_and_decode, read)

    def _read_and_decode(self, read: Callable[[], bytes]) -> np.ndarray | str:
        try:
            data = read()
        except UNREACHABLE:
            raise
        except Exception as error:  # a source may raise anything
            return unreadable(error)
        return self.decode(data)

    def close(self) -> None:
        """End the workers, all at the same time."""
        self._threads.shutdown(wait=True, cancel_futures=True)
        workers = [self._workers.get() for _ in range(self._workers.qsize())]
        for worker in workers:
            worker.end()
        for worker in workers:
            worker.close()


class PillowWorker:
    """One child process; it is started at once and ready when it answers."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        home = str(Path(__file__).resolve().parents[3])
        paths = [home, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process: Any = subprocess.Popen(
            [sys.executable, "-c", _CHILD, json.dumps(asdict(geometry))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
        )

    def ask(self, data: bytes) -> np.ndarray | str:
        """Have one image decoded; EOFError or BrokenPipeError when the worker died of it."""
        to, back = self._process.stdin, self._process.stdout
        to.write(_REQUEST.pack(len(data)))
        to.write(data)
        to.flush()
        status, size = _ANSWER.unpack(_all_of(back, _ANSWER.size))
        answer = _all_of(back, size)
        if status:
            return answer.decode("utf-8", "replace")
        shape = (self.geometry.crop_height, self.geometry.crop_width, 3)
        return np.frombuffer(answer, np.uint8).reshape(shape)

    def end(self) -> None:
        """Let the process end, as it does when its input ends; nobody waits for it here."""
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def close(self) -> None:
        """End the process."""
        self.end()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def _decoded(data: bytes, geometry: Geometry) -> np.ndarray | str:
    """The pixels of an image, or what is wrong with it, in one line."""
    found = pixels_of(data, geometry)
    return f"{found.trouble}: {found.reason}" if isinstance(found, BadImage) else found


def unreadable(error: BaseException) -> str:
    """The line for an image whose bytes cannot be read."""
    return "unreadable: " + (" ".join(str(error).split()) or type(error).__name__)


def _all_of(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def serve(geometry: Geometry, requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until they end."""
    while True:
        head = requests.read(_REQUEST.size)
        if len(head) < _REQUEST.size:
            return
        data = _all_of(requests, _REQUEST.unpack(head)[0])
        found = _decoded(data, geometry)
        if isinstance(found, str):
            status, answer = 1, found.encode("utf-8")
        else:
            status, answer = 0, np.ascontiguousarray(found).tobytes()
        answers.write(_ANSWER.pack(status, len(answer)))
        answers.write(answer)
        answers.flush()


def main(arguments: list[str]) -> None:
    """A worker's whole life."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it by closing its input
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not end up between the answers
    serve(Geometry(**json.loads(arguments[0])), sys.stdin.buffer, answers)
