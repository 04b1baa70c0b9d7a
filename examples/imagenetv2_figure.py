# %% [markdown]
# # The figure of ImageNetV2
#
# Accuracy on the new test set against accuracy on the original, for every published model, with a
# line through them on linear and probit axes. Needs the published files (`datasets/`,
# `predictions/`, `metadata/class_info.json`): set `HELDOUT_SHARED_DATA` to the folder that holds
# `imagenetv2/`, or lay it at `../shared/data`.

# %%
import os
from pathlib import Path

from heldout import Workspace, evaluate
from heldout.data.importing import read_testset
from heldout.data.testset import save
from heldout.models.predictions.import_predictions import import_files
from heldout.show.exports import write_figures
from heldout.show.page import write_report
from heldout.show.view import ReportData

data = Path(os.environ.get("HELDOUT_SHARED_DATA", "../shared/data")) / "imagenetv2"
workspace = Workspace(Path("imagenetv2-figure"))
names = ["imagenet-validation-original", "imagenetv2-b-33"]

# %% [markdown]
# ## Import: no images are needed, the published lists and arrays are enough

# %%
for name in names:
    testset = read_testset(
        data / f"datasets/{name}.json", classes=str(data / "metadata/class_info.json")
    )
    save(testset, workspace.testsets / name)
summary = import_files([data / "predictions" / name for name in names], workspace=workspace)
print(summary.counts)
for note in summary.notes:
    print("note:", note)

# %% [markdown]
# ## Score and fit
#
# Three Fisher-vector models at the low end move the linear slope; the probit slope barely moves.

# %%
for exclude in ((), ("fv_*",)):
    results = evaluate(
        "all", names, metrics=["top1"], baseline=names[0], exclude=exclude, workspace=workspace
    )
    for fit in results.fits[:2]:
        print(
            f"{fit.axes:7s} {fit.models} models: slope {fit.slope:.3f} "
            f"[{fit.slope_low:.3f}, {fit.slope_high:.3f}]"
        )

# %% [markdown]
# ## The figure, and a page with everything behind it

# %%
results = evaluate("all", names, metrics=["top1"], baseline=names[0], workspace=workspace)
page = ReportData(title="ImageNetV2, MatchedFrequency", records=results.records, baseline=names[0])
write_report(page, Path("imagenetv2-figure/report.html"))
write_figures(page, Path("imagenetv2-figure/figures"), formats=("svg",))
print(sorted(path.name for path in Path("imagenetv2-figure/figures").iterdir()))
