# Each target does all its own set-up: a virtual environment in .venv with the tested versions.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Python compiles what is imported, and must keep it; pip would compile all of it first
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -q --no-compile -c requirements/constraints.txt
# one thread per process: small models gain nothing from more, and the tests run in parallel
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

# a python that has torch with CUDA; the rest comes from wheels/, where there is no network
GPU_PYTHON ?= python3
GPU_RUN := env PYTHONPATH="build/gpu:.:$$PYTHONPATH" $(GPU_PYTHON)

.PHONY: demo test test-slow test-integrations lint lint-types lint-style docs docs-code docs-pages dist bench gpu clean help

help:
	@echo "make demo       private classifiers on the Adult data, with a group report"
	@echo "make test       all tests, linters and doctests"
	@echo "make test-slow  the tests that take minutes"
	@echo "make test-integrations  the tests with MLflow, Optuna, polars, SHAP, skrub and others"
	@echo "make docs       the documentation, its gallery run, warnings as errors"
	@echo "make dist       the sdist and the wheel, with equal bytes for equal sources"
	@echo "make bench      speed and memory against plain torch and skorch"
	@echo "make gpu        tests and measurements on a GPU, in at most 10 minutes"

demo: $(VENV)/.demo
	@echo "== Running the demo: Adult data, epsilon 1, groups by sex"
	@$(BIN)/python -m skdpfair demo

test: $(VENV)/.test lint
	@echo "== Running the tests"
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow"
	@echo "== make test: everything passed"

test-slow: $(VENV)/.test
	@echo "== Running the slow tests"
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m slow
	@echo "== make test-slow: everything passed"

test-integrations: $(VENV)/.integrations
	@echo "== Running the tests with other libraries"
	@$(ONE_THREAD) $(BIN)/python -m pytest -q -n 2 --dist worksteal -m "not slow" \
		tests/integrations \
		tests/release/test_facts.py::test_skops_needs_trust_in_one_type

lint: $(VENV)/.test
	@echo "== Checking style, types, spelling and import floors"
	@$(MAKE) --no-print-directory -j 2 lint-types lint-style

lint-types: $(VENV)/.test
	@$(BIN)/mypy

lint-style: $(VENV)/.test
	@$(BIN)/python -m ruff check .
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/codespell
	@$(BIN)/lint-imports

docs: $(VENV)/.docs
	@$(MAKE) --no-print-directory -j 2 docs-code docs-pages
	@echo "== Done: docs/_build/html/index.html"

docs-code: $(VENV)/.docs
	@echo "== Running the code on the pages"
	@$(ONE_THREAD) $(BIN)/python docs/blocks.py

docs-pages: $(VENV)/.docs
	@echo "== Building the documentation"
	@$(ONE_THREAD) $(BIN)/python -m sphinx -q -W --keep-going -b html -d docs/_build/doctrees docs docs/_build/html

# equal sources, versions of the tools and time give equal bytes; the time is that of the last commit
dist: $(VENV)/bin/python
	@echo "== Building the sdist and the wheel"
	@$(PIP_INSTALL) build hatchling hatch-fancy-pypi-readme
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build --no-isolation
	@cd dist && sha256sum *

bench: $(VENV)/.test
	@echo "== Measuring; ratios in one run, one thread; results in build/bench"
	@$(ONE_THREAD) $(BIN)/python -m benchmarks.bench_training --output build/bench
	@$(ONE_THREAD) $(BIN)/python -m benchmarks.bench_persons --output build/bench
	@$(ONE_THREAD) $(BIN)/python -m benchmarks.bench_users --output build/bench

gpu:
	@$(GPU_PYTHON) -c "import torch; assert torch.cuda.is_available()" 2>/dev/null || \
	  { echo "make gpu: $(GPU_PYTHON) has no torch that finds a CUDA device; set GPU_PYTHON"; exit 1; }
	@test ! -d wheels || $(GPU_PYTHON) -m pip install --disable-pip-version-check -q --no-index \
	  --no-deps --upgrade --target build/gpu wheels/*.whl
	@echo "== Testing fits on the GPU"
	@mkdir -p build
	@timeout 150 $(GPU_RUN) -m pytest -q -m gpu -W default tests/e2e/test_cuda.py; echo $$? > build/gpu.tests
	@echo "== Measuring steps, pictures and fits on the GPU"
	@timeout 400 $(GPU_RUN) -m benchmarks.bench_gpu
	@test "$$(cat build/gpu.tests)" = 0 || { echo "make gpu: tests failed"; exit 1; }
	@echo "== make gpu: everything passed"

$(VENV)/bin/python:
	@echo "== Creating a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml requirements/constraints.txt
	@echo "== Installing skdpfair and what it needs (a few minutes the first time)"
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) -e ".[plot,cli]"
	@touch $@

$(VENV)/.test: $(VENV)/bin/python pyproject.toml requirements/constraints.txt requirements/dashboard.txt
	@echo "== Installing skdpfair with its test tools (a few minutes the first time)"
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) -e ".[test]"
	@$(PIP_INSTALL) --no-deps -r requirements/dashboard.txt
	@touch $@ $(VENV)/.demo

$(VENV)/.integrations: $(VENV)/.test
	@echo "== Installing the libraries that skdpfair works with"
	@$(PIP_INSTALL) -e ".[test,integrations]"
	@touch $@

$(VENV)/.docs: $(VENV)/bin/python pyproject.toml requirements/constraints.txt
	@echo "== Installing skdpfair with its documentation tools (a few minutes the first time)"
	@$(PIP_INSTALL) torch
	@$(PIP_INSTALL) -e ".[docs]"
	@touch $@

clean:
	rm -rf $(VENV) build dist skdpfair-demo docs/_build docs/auto_examples docs/api
