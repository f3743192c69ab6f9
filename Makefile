# Everything is run from here. `make setup` once (it does nothing when there is nothing to do), then any of the others.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

PYTHON ?= python3.11
VENV := .venv
LABEL_STUDIO_VENV := .venv-label-studio
LABEL_STUDIO := label-studio==1.23.2
PIP := 26.3
PY := $(VENV)/bin/python

# A stamp's name holds a hash of what was installed, so that a change of it installs again and nothing else does.
STAMP := $(VENV)/.installed-$(shell cat constraints.txt pyproject.toml | sha256sum | cut -c1-16)
LABEL_STUDIO_STAMP := $(LABEL_STUDIO_VENV)/.installed-$(shell echo '$(LABEL_STUDIO)' | cat - constraints-label-studio.txt | sha256sum | cut -c1-16)

.PHONY: help setup python check format test test-fast demo demo-real up clean

help:
	@echo 'make setup      install everything into $(VENV) and $(LABEL_STUDIO_VENV)'
	@echo 'make up         run Longtail on this machine: database, broker, Label Studio, API and workers'
	@echo 'make demo       turn the whole loop on a simulated fleet'
	@echo 'make demo-real  DATA=folder SEED=seqs POOL=seqs GOLDEN=seqs: the same on real driving data'
	@echo 'make check      format, lint, types, who imports whom, migrations'
	@echo 'make test       every test; make test-fast leaves out the slow ones'
	@echo 'make format     put the code into shape'
	@echo 'make clean      remove caches; the virtual environments and .longtail stay'

# --- setting up ---

setup:
	@$(MAKE) --silent -j2 $(STAMP) $(LABEL_STUDIO_STAMP)

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null || { \
	    echo 'Longtail needs Python 3.11, and "$(PYTHON)" is not that: install it, or say where it is with' >&2; \
	    echo '    make setup PYTHON=/path/to/python3.11' >&2; exit 1; }

$(STAMP): | python
	@[ -x $(PY) ] || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install -qq --disable-pip-version-check pip==$(PIP) -c constraints.txt setuptools
	@echo 'installing into $(VENV) (torch is large: this takes minutes the first time)'
	@PYTHONWARNINGS=ignore $(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt --no-build-isolation --group dev --editable .
	@rm -f $(VENV)/.installed-* && touch $@

$(LABEL_STUDIO_STAMP): | python
	@[ -x $(LABEL_STUDIO_VENV)/bin/python ] || $(PYTHON) -m venv $(LABEL_STUDIO_VENV)
	@$(LABEL_STUDIO_VENV)/bin/python -m pip install -qq --disable-pip-version-check pip==$(PIP)
	@echo 'installing Label Studio into $(LABEL_STUDIO_VENV)'
	@$(LABEL_STUDIO_VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints-label-studio.txt $(LABEL_STUDIO)
	@rm -f $(LABEL_STUDIO_VENV)/.installed-* && touch $@

# --- checking ---

check: $(STAMP)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports
	$(PY) -m pytest -q tests/architecture tests/engine/store/test_migrations_in_step.py

format: $(STAMP)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

test: setup
	$(PY) -m pytest --durations=15

test-fast: $(STAMP)
	$(PY) -m pytest -m 'not slow and not label_studio and not browser'

# --- running ---

up: setup
	$(PY) -m services.cli up

demo: setup
	$(PY) -m services.cli demo

DATA ?=
SEED ?=
POOL ?=
GOLDEN ?=
demo-real: setup
	@[ -n '$(DATA)' ] || { echo 'say where the data is: make demo-real DATA=/path/to/camvid' >&2; exit 1; }
	$(PY) -m services.cli demo-real --data '$(DATA)' $(if $(SEED),--seed '$(SEED)') $(if $(POOL),--pool '$(POOL)') $(if $(GOLDEN),--golden '$(GOLDEN)')

clean:
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build *.egg-info
	find engine models services benchmarks migrations tests -name __pycache__ -type d -prune -exec rm -rf {} +
