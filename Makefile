# GNU make 3.81 or newer. Everything is installed into .venv, nothing outside of this folder.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
SPACE := $(subst ,, )
CRASH_TESTS = $(shell grep -rlE --include='test_*.py' '\bsample\b|\bof=[0-9]|hostile import|mark.crash|environ.get..[A-Z]+_(STEP|EXAMPLES|SEEDS)' tests)

# How much `make test-crash` does: every CRASH_STEP-th point, so many inputs and seeds. It runs what
# `make test` takes only a sample of.
CRASH_STEP ?= 1
HOSTILE_EXAMPLES ?= 1000
JOBS_SEEDS ?= 60

# Which tests `make test-darwin` runs; tests is all of them, 15 minutes.
DARWIN ?= tests/process tests/whole/test_kills.py tests/state/test_lock.py tests/show/test_live.py
# Which tests of `make test-gate`, as in `pytest -k`; none is all of them, 11 minutes.
GATE ?=

# 1 is the whole of `make bench`, some minutes; 0.1 takes one and a half.
BENCH_SCALE ?= 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-crash test-agents test-gate test-slurm test-darwin lint build bench night clean

help: ## list these targets; the first one of all sets up .venv, in about 10 s
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: $(STAMP) ## watch ralph at work, with a scripted agent (15 s)
	$(BIN)/ralph demo

# Without bytecode every process of pytest compiles and rewrites all tests again.
test: $(STAMP) ## run the tests; TESTS=tests/git for some (3 min)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest $(TESTS)

test-crash: $(STAMP) ## kill -9 at every state-changing call, failing disks, power cuts (20 min; CRASH_STEP=16: some)
	CRASH_STEP=$(CRASH_STEP) HOSTILE_EXAMPLES=$(HOSTILE_EXAMPLES) JOBS_SEEDS=$(JOBS_SEEDS) $(BIN)/python -m pytest -m 'not agents' -rs $(CRASH_TESTS)

test-agents: $(STAMP) ## run the real agents against a scripted model, without a key; AGENTS=claude for one (5 min)
	$(BIN)/python -m tests.install_agents $(AGENTS)
	$(BIN)/python -m pytest -m agents -n 2 -rs -k '$(subst $(SPACE), or ,$(strip $(AGENTS)))' tests/whole/test_real_agents.py

test-gate: $(STAMP) ## take projects of npm, pip, uv, cargo and others from init to a green clone (12 min)
	$(BIN)/python -m pytest -m gate -n 2 -rs -k '$(GATE)' tests/whole/test_gate.py tests/whole/test_stacks.py tests/whole/test_runners.py tests/whole/test_cheats.py

test-slurm: $(STAMP) ## run examples/slurm.sh on a real Slurm of two nodes, without installing it (2 min)
	$(BIN)/python -m pytest -m slurm -n 2 -rs tests/test_slurm.py

test-darwin: $(STAMP) ## the parts that differ on macOS, on an emulated one; DARWIN=tests for all (2 min)
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m tests.darwin $(BIN)/python -m pytest $(DARWIN)
	$(BIN)/python -m tests.darwin $(BIN)/ralph demo

lint: $(STAMP) ## ruff and mypy --strict (20 s)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m mypy --strict

build: $(STAMP) ## make the wheel and the sdist in dist/ (15 s)
	$(BIN)/python -m build --outdir dist

bench: $(STAMP) ## measure what ralph costs; FIGURES="help git" for some (minutes; BENCH_SCALE=0.1: 90 s)
	BENCH_SCALE=$(BENCH_SCALE) $(BIN)/python benchmarks/bench.py $(FIGURES)

night: $(STAMP) ## play the same bad night to a shell loop and to ralph; writes its table (2 min)
	$(BIN)/python benchmarks/night.py --write

clean: ## remove .venv, dist/ and every cache (1 s)
	rm -rf $(VENV) dist build .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the folder that .venv was made for: moved, or without a python that runs, it is
# made anew; with another pyproject.toml, installed again.
READY := $(shell test -x $(BIN)/python && cat $(STAMP) 2> /dev/null)
ifneq ($(READY),$(CURDIR))
.PHONY: $(STAMP)
endif

$(STAMP): pyproject.toml
	@command -v $(PYTHON) > /dev/null || { \
	  echo "$(PYTHON) is not on PATH: Python 3.11 or newer is needed; make PYTHON=/path/to/python names one" >&2; exit 1; }
	@$(PYTHON) -c '$(RECENT)' || { \
	  echo "$$($(PYTHON) --version 2>&1) is too old: Python 3.11 or newer is needed; make PYTHON=python3.12 names another" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: install python3-venv (apt-get install python3-venv)" >&2; exit 1; }
	@if [ -f $(STAMP) ] && [ "$$(cat $(STAMP))" != "$(CURDIR)" ]; then rm -rf $(VENV); fi
	@$(BIN)/python -c '$(RECENT)' 2> /dev/null || rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -e '.[dev]'
	@echo "$(CURDIR)" > $(STAMP)
