# Every target makes its environment first, in .venv, if it is missing or its pins changed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
LIGHT := .venv/.light
HEAVY := .venv/.heavy
export OMP_NUM_THREADS := 1
unexport PYTHONDONTWRITEBYTECODE # compiled tests are kept beside them: the next run starts seconds sooner

.PHONY: help demo quick test check lint nightly bench docs wheel flower oracles sbom results clean

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

# Libraries that tests skip without: trackers, data sets.
$(HEAVY): $(STAMP)
	@echo "Installing the optional libraries into .venv (once)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[heavy]'
	@touch $@

demo: $(LIGHT)  ## which method helps on a small real problem, and why? an answer, a picture, a page; under a minute
	@$(BIN)/ecgr demo

PYTEST := $(BIN)/pytest --numprocesses 2 --dist worksteal

quick: $(STAMP)  ## after every change: no slow test, few generated examples; half a minute of two cores
	@$(PYTEST) --quick --quiet tests

test: $(STAMP)  ## before a commit: everything but what is left to the night; four minutes of two cores
	@$(PYTEST)

lint: $(STAMP)  ## ruff, mypy strict, import-linter
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint test  ## everything that has to be green

nightly: $(HEAVY)  ## all there is: the product of the tables, longer kill loops, real federations, notebooks, pages and their figures
	@ECGR_KILLS=20 $(PYTEST) -m '' --hypothesis-profile nightly

bench: $(STAMP)  ## benchmarks with thresholds, as ratios
	@$(BIN)/python -m benchmarks

docs: $(STAMP)  ## the documentation as a site, in build/site: offline, no warning allowed
	@$(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo build/site/index.html

wheel: $(STAMP)  ## the source distribution and the wheel, in dist, to the same bytes each time; tried in an empty environment
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct 2>/dev/null || echo 1577836800) $(BIN)/python -m hatchling build -t sdist -t wheel
	@$(BIN)/pytest --quiet -m '' tests/integration/test_wheel.py

# Another version of Flower than the pinned one, in an environment of its own that looks into .venv for everything else.
# PIP_NO_DEPS=1 leaves out what that version newly needs, where it is not to be had.
FLWR ?= 1.42.0
OTHER := build/flwr-$(FLWR)
flower: $(STAMP)  ## the federations on another Flower: make flower FLWR=1.42.0
	@test -x $(OTHER)/bin/python || $(BIN)/python -m venv $(OTHER)
	@$(BIN)/python -c "import site; print('import site; site.addsitedir(' + repr(site.getsitepackages()[0]) + ')')" \
		> $$($(OTHER)/bin/python -c "import site; print(site.getsitepackages()[0])")/packages-of-ours.pth
	@grep -vE '^(flwr|uv|certifi)==' constraints.txt > $(OTHER)/constraints.txt
	@$(OTHER)/bin/pip install --quiet --disable-pip-version-check --constraint $(OTHER)/constraints.txt 'flwr==$(FLWR)'
	@$(OTHER)/bin/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@$(OTHER)/bin/python -m pytest --quiet -p no:cacheprovider tests/flower
	@$(OTHER)/bin/python -m pytest --quiet -p no:cacheprovider -m nightly -k gives_the_weights_of_a_run_and_leaves_no_process tests/integration

# What declearn, statsmodels and flwr-datasets need is in an environment of its own (declearn wants an older pandas), which
# looks into .venv for everything else.
ORACLES := build/oracles
oracles: $(STAMP)  ## the methods, statistics, metrics and partitions against other libraries' real code
	@test -x $(ORACLES)/bin/python || $(BIN)/python -m venv $(ORACLES)
	@$(BIN)/python -c "import site; print('import site; site.addsitedir(' + repr(site.getsitepackages()[0]) + ')')" \
		> $$($(ORACLES)/bin/python -c "import site; print(site.getsitepackages()[0])")/packages-of-ours.pth
	@grep -vE '^pandas==' constraints.txt > $(ORACLES)/constraints.txt
	@$(ORACLES)/bin/pip install --quiet --disable-pip-version-check --constraint $(ORACLES)/constraints.txt \
		-r tests/oracles_external/requirements.txt
	@$(ORACLES)/bin/python -m pytest --quiet -p no:cacheprovider -m '' tests/oracles_external

# CycloneDX's own tool, in an environment of its own; ENV is the environment that is described.
CYCLONEDX ?= 7.5.0
ENV ?= .venv
sbom: $(STAMP)  ## the software bill of materials, build/sbom.json, validated; of another environment: make sbom ENV=/opt/ecgr
	@test -x build/cyclonedx/bin/cyclonedx-py || $(BIN)/python -m venv build/cyclonedx
	@build/cyclonedx/bin/pip install --quiet --disable-pip-version-check 'cyclonedx-bom==$(CYCLONEDX)'
	@build/cyclonedx/bin/cyclonedx-py environment --validate --spec-version 1.6 --output-reproducible \
		--pyproject pyproject.toml --output-file build/sbom.json $(ENV)/bin/python
	@echo build/sbom.json

results: $(STAMP)  ## the result pages and their figures, from the committed data
	@$(BIN)/python -m study
	@$(BIN)/pytest --quiet -m nightly tests/study

clean:  ## remove the environment and caches
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
