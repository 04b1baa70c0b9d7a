"""What the verb that labels a pool is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from heldout.core.request import (
    Classes,
    EncoderName,
    Images,
    Name,
    Out,
    Replace,
    Request,
    Shard,
    Top,
    Workers,
    argument,
    needs,
    option,
    unused,
)

OWN = "own"
"""``--classes own``: the label space that the images already have."""


class AnnotateRequest(Request, frozen=True, kw_only=True):
    """Label images with the nearest of many classes (CLIP).

    Of imagenet-21k by default; --classes own are the images' own. A new pool is written, in the
    workspace or in the folder --out, or a Parquet file if --out ends in .parquet.
    """

    pool: Annotated[
        str,
        argument("Pool, test set, folder of images, or vectors: a folder, .npy or .npz file."),
    ]
    encoder: EncoderName | None = None
    encoder_args: (
        Annotated[
            Mapping[str, Any],
            option("Argument of the encoder: key=value, value as JSON; repeatable.", rare=True),
        ]
        | None
    ) = None
    classes: Classes = "imagenet-21k"
    class_texts: Annotated[
        str, option("Class texts: lemmas (all names), first (distinct), or a file.")
    ] = "lemmas"
    templates: Annotated[
        str, option("Sentences around a name: none, single, ensemble (80), openai, or a file.")
    ] = "none"
    class_vectors: (
        Annotated[
            Path, option("Vectors of the classes, made elsewhere: as for images, ids of classes.")
        ]
        | None
    ) = None
    similarities: Annotated[
        str,
        option("Columns to write: cosine, softmax@T, margin, lse@T; T may be scale."),
    ] = "cosine,softmax@1,margin"
    top: Top = 1
    images: Images | None = None
    name: Name | None = None
    out: Out | None = None
    workers: Workers | None = None
    shard: Shard | None = None
    replace: Replace = False

    def check(self) -> None:
        """Vectors of classes take the place of texts."""
        needs(self, "encoder_args", "encoder")
        if self.class_vectors is not None:
            unused(self, "class vectors", "class_texts", "templates")
        if self.out is not None and self.out.suffix == ".parquet":
            unused(self, "a Parquet file", "name")
