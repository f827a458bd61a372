# Everything happens in .venv; `make run` and `make test` set it up first.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Tests share two processes, except those that need the machine for themselves.
PYTEST := $(BIN)/python -m pytest
BESIDE := $(PYTEST) --numprocesses 2 --dist worksteal
# The tests start many processes, which need not compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test quick check lock clean

run: .venv/ready  ## the main job: every way to cut BLOOM 176B over 384 GPUs
	$(BIN)/python experiments/run.py -m parallel.t=1,2,4,8 parallel.p=6,12,24

test: .venv/ready  ## all tests
	$(BESIDE) -m "not alone"
	$(PYTEST) -m alone $(shell grep -l "mark.alone" tests/test_*.py)

quick: .venv/ready  ## the tests that take seconds
	$(BESIDE) -m "not slow and not alone" --hypothesis-profile quick

check: .venv/ready  ## format, lint, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(MAKE) test

lock: ## newest versions that pyproject.toml allows, written to requirements.lock
	rm -rf .venv-lock && $(PYTHON) -m venv .venv-lock
	.venv-lock/bin/pip install --quiet --disable-pip-version-check torch==2.13.0 ".[dev]"
	.venv-lock/bin/pip freeze --exclude pipesim | sed "s/+cpu$$//" > requirements.lock
	rm -rf .venv-lock

.venv/ready: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "Setting up .venv; this takes some minutes: PyTorch is among what is downloaded."
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --use-pep517 -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	touch $@

clean:
	rm -rf .venv outputs build *.egg-info
