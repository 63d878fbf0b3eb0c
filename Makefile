# Everything runs in one virtual environment, made at the first call and reused afterwards.
#
#   make demo     set-up, then the main example: real data, private releases, exact posteriors
#   make test     set-up, then the tests (FULL=1: the statistical suites in full; ARGS=... to pytest)
#   make coverage set-up, then the tests, and which lines of Python they ran (kernels: those in plain Python)
#   make bounds   set-up, then the tests, with every index of machine code checked (slower; caches of their own)
#   make docs     set-up, then the documentation, in docs/_build/html, with what the programs of pages print and
#                 draw: minutes the first time, then for changed pages only (DOCS_EXECUTE=off: without)
#   make lint     set-up, then formatting, lint and types; `make format` mends what can be mended
#   make bench    set-up, then the benchmarks
#   make clean    remove what the build made; `make distclean` removes the environment too
#
# PYTHON=/path/to/python picks the interpreter; VENV=directory puts the environment elsewhere.

SHELL := /bin/sh
VENV ?= .venv
PY := $(VENV)/bin/python
SPHINX := $(PY) -m sphinx -W --keep-going -q -d docs/_build/doctrees

export VENV
export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo test coverage bounds docs lint format bench clean distclean
# The stamps are wanted even where a rule only passes through them.
.SECONDARY:

help:
	@sed -n 's/^#   //p' Makefile

# The stamp is written last: an interrupted set-up starts afresh.
$(VENV)/.created: | scripts/find_python
	@python=$$(scripts/find_python) && echo "Set-up: $$python -> $(VENV)" && \
	"$$python" -m venv --clear $(VENV)
	@touch $@

# One stamp for each group of dependencies ("extra") in pyproject.toml. Modules are compiled when they are
# imported: most never are, and compiling all of them takes longer than the rest of the set-up.
$(VENV)/.with-%: $(VENV)/.created pyproject.toml
	@echo "Set-up: pymc_dp with its dependencies for '$*' (some minutes the first time)"
	@$(PY) -m pip install -qq --disable-pip-version-check --no-compile --editable '.[$*]'
	@touch $@

setup: $(VENV)/.with-test $(VENV)/.with-docs

demo: $(VENV)/.with-examples
	@$(PY) examples/rand_health_insurance.py

test: $(VENV)/.with-test
	@scripts/test $(if $(FULL),--full) $(ARGS)

coverage: $(VENV)/.with-coverage
	@scripts/test --cov --cov-report term --cov-report html:docs/_build/coverage $(if $(FULL),--full) $(ARGS)

bounds: $(VENV)/.with-test
	@NUMBA_BOUNDSCHECK=1 NUMBA_CACHE_DIR=$(CURDIR)/build/bounds \
	PYTENSOR_FLAGS=base_compiledir=$(CURDIR)/build/bounds \
	scripts/test $(if $(FULL),--full) $(ARGS)

docs: $(VENV)/.with-docs
	@$(SPHINX) -b html docs docs/_build/html
	@$(SPHINX) -b doctest docs docs/_build/doctest
	@echo "Documentation: docs/_build/html/index.html"

lint: $(VENV)/.with-test
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: $(VENV)/.with-test
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

bench: $(VENV)/.with-bench
	@$(PY) -m benchmarks

clean:
	@rm -rf build dist *.egg-info docs/_build docs/reference/generated
	@rm -rf .pytest_cache .mypy_cache .ruff_cache examples/output benchmarks/output
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	@rm -rf $(VENV)
