# Every target works by itself on a fresh machine: it first sets up .venv/ if that is missing or out of date.
#
#   make quickstart   judge the bundled examples, search for a kernel with the starter model or the templates, show the report
#   make check        lint, types and the tests of what changed, or a subset where nothing did: at most 90 s
#   make test         run the tests (those that need a GPU are skipped, with the reason, where there is none)
#   make test-all     run these, and every case of the sets of which `make test` runs a sample
#   make lint         ruff, ruff format and mypy
#   make triton       add Triton (1 GB installed), so that Triton candidates are judged without a GPU, too
#   make clean        remove .venv/, run folders and tool caches
#
# Variables: PYTHON=python3.12 picks the interpreter. TORCH="torch==2.13.0 --index-url URL" is what pip installs first, by
# itself; unset, it is the pinned version, on a machine without an NVIDIA GPU its CPU build where pip can find one.
# SYSTEM_TORCH=1 uses the torch that PYTHON already has (the default where there is a GPU and PYTHON has torch);
# SYSTEM_TORCH=0 forbids that. TEST_JOBS=3 is how many test files run at once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
.PHONY: help setup quickstart check test test-all lint triton clean

export OMP_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Empty is unset: without bytecode each process compiles our modules anew, and each run pytest's copy of all test files.
export PYTHONDONTWRITEBYTECODE :=

PINNED_TORCH := $(shell grep '^torch==' constraints.txt)
SUITABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))
PYTHON ?= $(shell for p in python3 python3.12 python3.11; do "$$p" -c '$(SUITABLE)' 2>/dev/null && { echo $$p; break; }; done)
SYSTEM_TORCH ?= $(shell nvidia-smi -L >/dev/null 2>&1 && $(PYTHON) -c 'import torch' 2>/dev/null && echo 1 || echo 0)

# One more than two cores: many tests wait for a deadline, and leave their core to another file meanwhile.
TEST_JOBS ?= 3
PYTEST := python -m pytest -n $(TEST_JOBS) --dist loadfile --no-loadscope-reorder
BIN := .venv/bin
COMPILED := $(wildcard src/kernelwright/machine/csrc/*.* src/kernelwright/machine/csrc/*/*.* \
	src/kernelwright/backends/host_include/*/*.* src/kernelwright/backends/host_include/*/*/*.*)

help:
	@sed -n '3,15s/^# \{0,1\}//p' Makefile

setup: .venv/.compiled

.venv/.installed: pyproject.toml constraints.txt
	@[ -n "$(PYTHON)" ] || { echo "error: no Python 3.11 or 3.12 with venv on the PATH" >&2; \
		echo "hint: install one (e.g. apt-get install python3 python3-venv) or pass PYTHON=/path/to/python3.12" >&2; exit 2; }
	@if [ "$(SYSTEM_TORCH)" = 1 ]; then \
		echo "set-up: .venv with the machine's own torch ($(PYTHON))"; \
		$(PYTHON) -m venv --system-site-packages .venv; \
		version=$$($(PYTHON) -c 'import importlib.metadata as m; print(m.version("torch"))'); \
		sed "s/^torch==.*/torch==$$version/" constraints.txt > .venv/constraints.txt; \
	else \
		echo "set-up: .venv ($(PYTHON)), then torch by itself (some minutes on a fresh machine)"; \
		$(PYTHON) -m venv .venv; \
		cp constraints.txt .venv/constraints.txt; \
		if [ -n "$(TORCH)" ]; then $(BIN)/python -m pip install -qq $(TORCH); else \
			{ ! nvidia-smi -L >/dev/null 2>&1 && $(BIN)/python -m pip install -qq "$(PINNED_TORCH)+cpu" 2>/dev/null; } || \
			$(BIN)/python -m pip install -qq "$(PINNED_TORCH)"; \
		fi; \
	fi
	@echo "set-up: kernelwright and its dependencies"
	@$(BIN)/python -m pip install -qq -c .venv/constraints.txt -e '.[dev]'
	@touch $@

.venv/.compiled: .venv/.installed $(COMPILED)
	@echo "set-up: the functional CUDA machine and the host stand-in's precompiled header (g++)"
	@$(BIN)/python -m kernelwright.doctor
	@touch $@

quickstart: setup
	@bash examples/quickstart.sh

check: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@files=$$($(BIN)/python tests/changed.py); $(BIN)/mypy & types=$$!; status=0; \
		$(BIN)/$(PYTEST) $$files || status=$$?; wait $$types || status=$$?; exit $$status

test: setup .venv/.training
	@$(BIN)/$(PYTEST)

test-all: setup .venv/.training
	@$(BIN)/$(PYTEST) -m ""

.venv/.training: .venv/.installed
	@echo "set-up: what training needs (transformers, TRL, datasets), for its tests"
	@$(BIN)/python -m pip install -qq -c .venv/constraints.txt -e '.[trl]'
	@touch $@

triton: setup
	@$(BIN)/python -m pip install -qq -c .venv/constraints.txt -e '.[triton]'

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

clean:
	rm -rf .venv runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
