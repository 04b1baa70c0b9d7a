"""The smallest complete recipe: some images of each class, drawn by hash, perhaps rendered anew.

It stands in for real recipes in tests, and shows authors of plug-ins all parts of the protocol:
parameters with rules, chance from the row hash, counts a stage, heavy work through the engine,
origins of made images.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from heldout.core.engine import Job, Unit, unit_key
from heldout.core.request import Request, Truth, option
from heldout.curate.recipe import (
    BuildContext,
    Guarantees,
    Recipe,
    RecipeResult,
    Sources,
    TruthTable,
    pool_in,
)
from heldout.data.testset.columns import ColumnType
from heldout.data.testset.hashing import first_in_groups, row_hash
from heldout.data.testset.tables import image_table, truth_table
from heldout.measure.score.truth import class_indices


class SampleParameters(Request, frozen=True, kw_only=True):
    """What :class:`SampleRecipe` is asked for."""

    per_class: Annotated[int, option("Images of each class, fewer if it has fewer.", ge=1)] = 2
    truth: Truth | None = None
    render: Annotated[bool, option("Draw a new picture for each image.")] = False
    side: Annotated[int, option("Side of the drawn pictures in pixels.", ge=1, le=256)] = 8


class SampleRecipe(Recipe):
    """Draw ``per_class`` images of each class; with ``render``, make a small picture of each."""

    name = "sample"
    version = "1"
    parameters = SampleParameters
    guarantees = Guarantees(nested=("per_class",), selects=False)

    def build(
        self, sources: Sources, parameters: SampleParameters, *, seed: int, context: BuildContext
    ) -> RecipeResult:
        """The drawn rows with their truth, columns and memberships."""
        import pyarrow as pa
        import pyarrow.compute as pc

        pool = pool_in(sources)
        table = pool.truth(parameters.truth)
        space = pool.label_space
        groups = class_indices(table["class_id"], space)
        rows = first_in_groups(table["image_id"], groups, count=parameters.per_class, seed=seed)
        truth = table.take(rows)
        ids = pa.array(sorted(set(truth["image_id"].to_pylist())), pa.string())

        def chosen(given: Any) -> Any:
            return given.filter(pc.is_in(given["image_id"], value_set=ids))

        counts = {"labelled": int((groups >= 0).sum()), "drawn": len(ids)}
        if not parameters.render:
            return RecipeResult(
                images=chosen(pool.images),
                truths={"original": TruthTable(table=truth)},
                memberships=chosen(pool.memberships),
                label_space=space,
                counts=counts,
            )
        return _rendered(ids.to_pylist(), truth, space, parameters, context, counts)


def draw(payload: tuple[str, int]) -> bytes:
    """A small PNG whose pixels follow from an image's id."""
    import io

    from PIL import Image

    image_id, side = payload
    cells = [f"{image_id}/{cell}" for cell in range(side * side)]
    pixels = (row_hash(cells, seed=0) & np.uint64(0xFFFFFF)).astype("<u4")
    colours = pixels.view(np.uint8).reshape(side, side, 4)[:, :, :3]
    stream = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(colours), "RGB").save(stream, format="PNG")
    return stream.getvalue()


def _rendered(
    ids: list[str],
    truth: Any,
    space: Any,
    parameters: SampleParameters,
    context: BuildContext,
    counts: dict[str, int],
) -> RecipeResult:
    side = parameters.side
    units = {i: Unit(unit_key("sample-draw-1", image=i, side=side), (i, side)) for i in ids}
    results = context.complete(Job(name="sample-draw", work=draw), units.values())
    made = {image: f"{image}@{side}" for image in ids}
    classes = dict(zip(truth["image_id"].to_pylist(), truth["class_id"].to_pylist(), strict=True))
    return RecipeResult(
        images=image_table({"image_id": list(made.values()), "side": [side] * len(made)}),
        truths={
            "original": TruthTable(
                table=truth_table(list(made.values()), [classes[image] for image in made])
            )
        },
        label_space=space,
        columns={"side": ColumnType(kind="ordered", unit="pixels")},
        counts=counts,
        origins={new: (("pool", image),) for image, new in made.items()},
        files={new: results.path(units[image].key) for image, new in made.items()},
    )


recipe = SampleRecipe()
