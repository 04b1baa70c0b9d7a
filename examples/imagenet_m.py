# %% [markdown]
# # Evaluating on ImageNet-M and with multi-label truth
#
# ImageNet-M is a list of validation images on which strong models make major mistakes. The official
# list is not ours to ship: give it as a text or JSON file, or as the source JSON of TFDS. Here a
# stand-in of the same shape is made from the published mistakes of one model, so the numbers show
# the method and are not ImageNet-M scores.

# %%
import json
import os
from pathlib import Path

from heldout import Workspace, evaluate
from heldout.data.importing import read_testset, read_truth
from heldout.data.testset import add_truth, find_testset, save
from heldout.models.predictions.import_predictions import import_files

data = Path(os.environ.get("HELDOUT_SHARED_DATA", "../shared/data"))
workspace = Workspace(Path("imagenet-m"))
order = data / "imagenetv2/datasets/imagenet-validation-original.json"

# %% [markdown]
# ## The validation set and its multi-label truth

# %%
validation = save(read_testset(order), workspace.testsets / "imagenet-validation-original")
truth = read_truth(data / "mistakes/multilabel.csv", validation)
validation = add_truth(validation, "multilabel", truth.table, provenance=truth.provenance)
print(validation.card.truths["multilabel"]["conflicts"])

# %% [markdown]
# ## A list of images becomes a test set of its own, with its parent on the card

# %%
mistakes = json.loads((data / "mistakes/vit3b_mistakes.json").read_text())
major = sorted(image for image, found in mistakes.items() if found["failure severity"] == "Major")
Path("major.json").write_text(json.dumps(major))
subset = read_testset(Path("major.json"), parent=validation, name="major-mistakes")
subset = save(subset, workspace.testsets / "major-mistakes")
print(len(subset), "images; parents:", [parent.get("name") for parent in subset.card.parents])

# %% [markdown]
# ## Scores: no image is left out, a correct or unclear top-1 counts

# %%
files = [
    data / f"imagenetv2/predictions/imagenet-validation-original/{m}.npy"
    for m in ("alexnet", "nasnetalarge")
]
import_files(files, workspace=workspace, testset="major-mistakes", order=str(order))
import_files(files, workspace=workspace, testset="imagenet-validation-original")
results = evaluate("all", "major-mistakes", metrics=["accepted"], workspace=workspace)
for score in results.scores:
    print(f"{score.model}: {round(score.value * score.n)} of {score.n} accepted")

# %% [markdown]
# ## Multi-label accuracy with its bounds: what nobody has reviewed may be right

# %%
results = evaluate(
    "all",
    find_testset(workspace, "imagenet-validation-original"),
    truth="multilabel",
    metrics=["mla", "mla_upper"],
    workspace=workspace,
)
for score in results.scores:
    print(f"{score.model:14s} {score.metric:10s} {100 * score.value:.3f} %")
