#!/bin/sh
# Makes the virtual environment of the torch tests: tools/torch_env.sh FOLDER [PYTHON]
#
# torch is chosen by version, not by hash: every platform has a wheel of its own (CPU, CUDA, macOS).
# It comes first, after what it imports, so that pip has nothing left to choose: whatever the index
# gives for that version, with the CUDA packages that this wheel itself asks for or with none.
# Everything else is pinned by hash. The libraries with models are installed without dependencies,
# so that none of them can exchange torch.
set -eu
folder=${1:?where to make the environment}
python=${2:-python3}
torch=2.13.0
here=$(dirname "$0")/..

test -x "$folder/bin/python" || "$python" -m venv "$folder"
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

install --require-hashes -r "$here/requirements/torch.txt"
install "torch==$torch"
install --require-hashes --no-deps -r "$here/requirements/dev.txt"
# pretrainedmodels has no wheel; the pinned setuptools of torch.txt builds it.
install --require-hashes --no-deps --no-build-isolation -r "$here/requirements/torch-libraries.txt"
install --no-deps --no-build-isolation -e "$here"

# Nothing above may have changed torch or brought CUDA packages that it did not ask for.
"$folder/bin/python" - "$torch" <<'PYTHON'
import importlib.metadata as metadata
import sys

import torch

wanted = sys.argv[1]
if torch.__version__.split("+")[0] != wanted:
    sys.exit(f"torch is {torch.__version__}, not {wanted}: remove the environment and make it again")
names = {(d.metadata["Name"] or "").lower() for d in metadata.distributions()}
if torch.version.cuda is None and (cuda := sorted(n for n in names if n.startswith("nvidia-"))):
    sys.exit(f"CUDA packages beside the CPU build of torch: {', '.join(cuda)}")
PYTHON
touch "$folder/ready"
