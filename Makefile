# make demo, make test: both make the environment first. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := .venv-docs
# Folders of tests whose files start no Ray and train little. CONTRIBUTING.md has what each folder may cost.
FAST := config core docs models results

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml raffed/core/kernels/_maxpool.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

venv: $(STAMP) ## the environment in .venv (about 3 minutes, 6 GB)

demo: $(STAMP) ## ten client actors, four methods, a table and a plot in demo/
	rm -rf demo
	$(BIN)/raffed compare --method fedavg --method fedrs --method fedmr --method map \
	    --dataset digits --split p10c2 --local-test 0.2 --clients-per-actor 1 --rounds 20 --epochs 5 --batch-size 16 \
	    --out demo

test: $(STAMP) ## the tests (CONTRIBUTING.md says how long they take)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not browser" -n 2 --dist loadfile --no-loadscope-reorder

test-fast: $(STAMP) ## the tests of $(FAST), under 2 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not browser" -n 2 --dist loadfile --no-loadscope-reorder \
	    $(addprefix tests/,$(FAST))

test-browser: $(STAMP) ## pages of reports in Chromium (skipped without it)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

test-slow: $(STAMP) ## the rest: more packings, more kills, real data
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

budget: $(STAMP) ## CPU seconds of every folder of the fast suite, beside what CONTRIBUTING.md allows it
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.budget

check: $(STAMP) ## ruff (rules and format) and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

$(DOCS)/.installed: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python .ci/extra.py docs > $(DOCS)/requirements.txt
	$(DOCS)/bin/python -m pip install --quiet --requirement $(DOCS)/requirements.txt
	touch $@

docs: $(DOCS)/.installed ## the documentation in site/, from an environment of its own; a broken link fails
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --strict --quiet --site-dir site
	$(DOCS)/bin/python -m tests.docs.check_site site

lock: ## resolve requirements.lock anew (needs uv), around the versions of .ci/pins.txt
	sed -n '/^#/p' requirements.lock > requirements.lock.new
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    -c .ci/pins.txt pyproject.toml >> requirements.lock.new
	mv requirements.lock.new requirements.lock

golden: $(STAMP) ## write tests/golden/wire.txt anew: what leaves a client, method by method
	$(BIN)/python -m tests.golden.regenerate

bench: $(STAMP) ## round time as a ratio to a bare PyTorch loop, in bench/ (RAFFED_DATA: the data; RAFFED_PEERS: Flower and pfl)
	$(BIN)/python -m tests.benchmarks.round_time --out bench/round_time.json

.PHONY: help venv demo test test-fast test-browser test-slow budget check docs lock golden bench
