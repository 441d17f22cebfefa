# Every target makes its environment first, in .venv, if it is missing or its pins changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LIGHT := .venv/.light
export OMP_NUM_THREADS := 1
unexport PYTHONDONTWRITEBYTECODE # compiled tests are kept beside them: the next run starts seconds sooner

.PHONY: help demo quick test check lint conformance bench docs results soak clean

help:  ## show these targets
	@grep -E '^[a-z]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing the environment into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# What the demo needs and no more; the developers' environment has it, too.
$(LIGHT): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -e $(STAMP) || echo "Installing into .venv (once)"
	@test -e $(STAMP) || $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	@touch $@

demo: $(LIGHT)  ## which method helps on a small real problem, and why? an answer, a picture, a page; under a minute
	@$(BIN)/ecgr demo

quick: $(STAMP)  ## what a contributor runs after every change: no slow test
	@$(BIN)/pytest --quick --quiet --numprocesses 2 --dist worksteal tests

test: $(STAMP)  ## the whole suite
	@$(BIN)/pytest --numprocesses 2 --dist worksteal

lint: $(STAMP)  ## ruff, mypy strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint test  ## everything that has to be green

conformance: $(STAMP)  ## every algorithm x server rule x regulator x loss: serial = resumed = pooled = federated
	@$(BIN)/pytest --numprocesses 2 --dist worksteal -m product tests/conformance

bench: $(STAMP)  ## benchmarks with thresholds, as ratios
	@$(BIN)/ecgr bench

docs: $(STAMP)  ## the documentation as a site, in build/site: offline, no warning allowed
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

results: $(STAMP)  ## docs/results/paper.md and its figures, from the committed data
	@$(BIN)/python -m study
	@$(BIN)/python docs/guide/which_method.py

soak: $(STAMP)  ## the kill tests, for longer, and those of a real federation
	@ECGR_KILLS=20 $(BIN)/pytest tests/integration/test_resume.py tests/integration/test_checkpoint.py
	@$(BIN)/pytest -m soak

clean:  ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
