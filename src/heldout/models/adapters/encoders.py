"""Image-text encoders by name: what ``--encoder`` arguments mean.

=========================  ====================================================================
``conse``                  a classifier and MiniLM, from packages alone; also ``conse:lite1``, …
``open_clip:ARCH/TAG``     both towers of a model of open_clip
``onnx-pair:FOLDER``       two ONNX files, a tokenizer and a sidecar
``path/file.py:object``    your own encoder, or a function that returns one
``fake``                   colours and colour names, for tests and examples
=========================  ====================================================================
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from heldout.core.errors import NotFound, UserError
from heldout.models.adapters.encoder import Encoder

ADAPTERS: dict[str, str] = {
    "conse": "heldout.models.adapters.conse",
    "open_clip": "heldout.models.adapters.open_clip_encoder",
    "onnx-pair": "heldout.models.adapters.onnx_pair",
    "fake": "heldout.testing.encoder",
}
"""Prefix -> module with ``load(name, **encoder_args)``, imported when one of them is loaded."""
_USER_CODE = re.compile(r"(.+\.py):([A-Za-z_][\w.]*)\Z")
_PARTS = (
    "name",
    "dimension",
    "preprocessing",
    "identity",
    "scale",
    "encode_images",
    "encode_texts",
)


def load_encoder(name: str, /, **encoder_args: Any) -> Encoder:
    """The encoder of one name; ``encoder_args`` go to its adapter."""
    match = _USER_CODE.match(name)
    if match:
        return _user_code(Path(match[1]), match[2], encoder_args)
    prefix, _, rest = name.partition(":")
    if prefix not in ADAPTERS or not (rest or prefix in ("conse", "fake")):
        known = ["conse", "conse:lite1", "open_clip:ARCH/TAG", "onnx-pair:FOLDER", "file.py:object"]
        near = difflib.get_close_matches(name, known, n=1)
        raise NotFound(f"no encoder {name!r}", fix=f"use {' or '.join(near) or ', '.join(known)}")
    adapter = importlib.import_module(ADAPTERS[prefix])
    return _called(adapter.load, [rest] if rest else [], name, encoder_args)


def _called(
    load: Callable[..., Any], rest: Sequence[str], name: str, encoder_args: Mapping[str, Any]
) -> Encoder:
    signature = inspect.signature(load)
    try:
        signature.bind(*rest, **encoder_args)
    except TypeError:
        takes = ", ".join(list(signature.parameters)[len(rest) :])
        raise UserError(
            f"{name} does not take the encoder arguments {', '.join(encoder_args)}",
            fix=f"it takes {takes or 'none'}",
        ) from None
    made: Encoder = load(*rest, **encoder_args)
    return made


def _user_code(path: Path, attribute: str, encoder_args: Mapping[str, Any]) -> Encoder:
    from heldout.core.files import existing_file
    from heldout.models.adapters.user_code import load_object

    found = load_object(existing_file(path, "Python file"), attribute)
    if isinstance(found, type) or not _is_encoder(found):
        if callable(found):
            found = _called(found, [], f"{path}:{attribute}", encoder_args)
    elif encoder_args:
        raise UserError(
            f"{path}:{attribute} takes no encoder arguments", fix="name a function that returns it"
        )
    if not _is_encoder(found):
        lacking = ", ".join(part for part in _PARTS if not hasattr(found, part))
        raise UserError(
            f"{path}:{attribute} is no encoder: it lacks {lacking}",
            fix="see heldout.models.adapters.Encoder for what each is",
        )
    encoder: Encoder = found
    return encoder


def _is_encoder(found: Any) -> bool:
    return all(hasattr(found, part) for part in _PARTS)
