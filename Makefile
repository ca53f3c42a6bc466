# crossrank: every command a developer or a newcomer needs. `make help` lists them.
VENV := .venv
BIN  := $(VENV)/bin
TORCH := .venv-torch
UV   ?= uv

# The first Python that fits; asked only when an environment has to be made.
FITS    = -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))'
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do $$p $(FITS) 2>/dev/null && echo $$p && break; done)

# The suite starts the service a hundred times: compile its modules once, even where the shell asks to keep no byte code.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install install-dev demo serve test test-browser test-torch test-long check format schemas benchmarks constraints clean

help:            ## list the targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# A stamp file per environment: a second run costs one stat call.
$(VENV)/.runtime: constraints.txt pyproject.toml
	@test -x $(BIN)/python || { py="$(PYTHON)"; test -n "$$py" || { echo "crossrank needs Python 3.11, 3.12 or 3.13 (with venv); name one with PYTHON=..."; exit 1; }; "$$py" -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/crossrank warmup
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime constraints-dev.txt client/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement constraints-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable client
	@touch $@

# Ranks of real training jobs run in an environment of their own: CPU PyTorch and two trainers, but nothing of the service.
$(TORCH)/.ready: $(VENV)/.dev constraints-torch.txt constraints-torch-cuda.txt
	@test -x $(TORCH)/bin/python || $(BIN)/python -m venv $(TORCH)
	$(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement constraints-torch.txt || \
	  { echo "No build of PyTorch without CUDA for this Python here: taking the one with it (5 GB)."; \
	    $(TORCH)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement constraints-torch-cuda.txt; }
	@touch $@

install: $(VENV)/.runtime       ## make .venv with the crossrank command

install-dev: $(VENV)/.dev       ## the same plus what tests and checks need

demo: install    ## simulate a 64-rank job against a local service and print its report
	$(BIN)/crossrank demo

serve: install   ## serve on 127.0.0.1:4318 with the data folder ./data
	$(BIN)/crossrank serve --data data

test: install-dev     ## the whole suite, except for what needs a browser or PyTorch
	$(BIN)/python -m pytest -n 2 --ignore=tests/browser --ignore=tests/torch tests

test-browser: install-dev   ## the page in headless Chromium (needs chromium and chromedriver); pictures in build/screenshots
	$(BIN)/python -m pytest tests/browser

test-torch: $(TORCH)/.ready   ## real PyTorch jobs of four ranks (DDP, FSDP2, pipeline) against the service; installs CPU PyTorch
	CROSSRANK_TORCH_PYTHON=$(TORCH)/bin/python $(BIN)/python -m pytest tests/torch

test-long: install-dev   ## the campaigns that take longer than a coffee
	$(BIN)/python -m pytest -n 2 -m long --ignore=tests/torch tests

check: install-dev    ## style, types, layers, generated schemas
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m crossrank.schemas --check

format: install-dev   ## apply the style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

schemas: install      ## regenerate schemas/ from the code
	$(BIN)/python -m crossrank.schemas

benchmarks: install-dev   ## run every benchmark; figures go to benchmarks/results
	@set -e; for script in benchmarks/bench_*.py; do echo "== $$script"; $(BIN)/python $$script; done

constraints:     ## refresh the pinned, hashed constraints (needs uv)
	$(UV) pip compile pyproject.toml --extra grpc --group build --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet --output-file constraints.txt
	$(UV) pip compile pyproject.toml --extra grpc --group build --group dev --constraint constraints.txt --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate --quiet --output-file constraints-dev.txt
	$(UV) pip compile --group torch --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --no-annotate --quiet --output-file constraints-torch-cuda.txt

clean:           ## remove what make made (not ./data)
	rm -rf $(VENV) $(TORCH) .pytest_cache .mypy_cache .ruff_cache dist build
