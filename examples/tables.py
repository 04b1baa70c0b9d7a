# %% [markdown]
# # A tour of the tables
#
# Test set, truth, memberships, predictions, records: everything heldout works with is a table that
# any tool can read. The data here are generated; nothing is measured.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq

from heldout import Workspace, evaluate
from heldout.testing.example import make_example

# %% [markdown]
# ## A workspace with two test sets and five simulated models

# %%
temporary = TemporaryDirectory()
workspace = Workspace(Path(temporary.name))
original, shifted = make_example(workspace, images=500)
print(shifted.card.name, len(shifted), "images,", shifted.card.content_hash[:12])

# %% [markdown]
# ## The images table: fixed columns, then the set's own

# %%
images = pq.read_table(workspace.testsets / "example-shifted" / "images.parquet")
print(images.select(["image_id", "light", "size", "angle", "x", "y"]).slice(0, 3).to_pylist())
for name, kind in shifted.card.columns.items():
    print(f"{name:14s}", kind.to_dict())

# %% [markdown]
# ## A truth: which labels are right
#
# This one has a single correct label an image. A multi-label truth has several, and lists of
# unclear and wrong ones.

# %%
print(shifted.truth("original").slice(0, 2).to_pylist())

# %% [markdown]
# ## Memberships: columns in which an image may have many values

# %%
print(shifted.memberships.slice(0, 3).to_pylist())

# %% [markdown]
# ## Predictions: filed under the images they were made on

# %%
parts = sorted(workspace.predictions.glob("*/oak@*/part-*.parquet"))
print(pq.read_table(parts[0]).schema.names, len(parts), "parts")

# %% [markdown]
# ## Records: scores with intervals, by slice, and fits to a baseline

# %%
results = evaluate(
    "all",
    ["example-original", "example-shifted"],
    metrics=["top1"],
    by=["light", "context"],
    baseline="example-original",
    workspace=workspace,
)
for score in results.scores[:8]:
    print(
        f"{score.model:4s} {score.slice:20s} {score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"
    )
print(results.fits[0])
temporary.cleanup()
