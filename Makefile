# make demo, make test: both make the environment first. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := .venv-docs
APART := .venv-apart
# What the fast tests are: CI adds those with the mark `more`, and the others have targets of their own.
QUICK := not slow and not browser and not apart and not more
# Where the shell forbids Python to keep what it compiled, every process of the tests compiles raffed and the tests again
export PYTHONDONTWRITEBYTECODE :=

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml raffed/core/kernels/_maxpool.c raffed/core/kernels/_convolution.c
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $@

venv: $(STAMP) ## the environment in .venv (about 3 minutes, 6 GB)

# README's picture has portable bits, which only Linux on x86-64 computes.
BITS := $(if $(filter Linux-x86_64,$(shell uname -s)-$(shell uname -m)),--numerics portable)
demo: $(STAMP) ## ten client actors, four methods, a table and a plot in demo/
	rm -rf demo
	$(BIN)/raffed compare --method fedavg --method fedrs --method fedmr --method map \
	    --dataset digits --split p10c2 --local-test 0.2 --clients-per-actor 1 --rounds 20 --epochs 5 --batch-size 16 \
	    $(BITS) --out demo

test: $(STAMP) ## the tests (CONTRIBUTING.md says how long they take)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$(QUICK)" -n 2 --dist loadfile --no-loadscope-reorder

test-browser: $(STAMP) ## pages of reports in Chromium (skipped without it)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

test-slow: $(STAMP) ## the rest: more packings, more kills, real data
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not apart"

$(VENV)/.extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[dev,test-extras]"
	touch $@

extras: $(VENV)/.extras ## what tests of optional packages need, in .venv: 2 minutes, 1 GB; `make test` skips them without it

# This environment sees the packages of .venv behind its own.
$(APART)/.installed: $(STAMP) .ci/extra.py
	$(PYTHON) -m venv --clear --without-pip $(APART)
	echo 'import site; site.addsitedir("$(abspath $(VENV))/lib/python$(shell $(PYTHON) -c "import sys; print(*sys.version_info[:2], sep=chr(46))")/site-packages")' \
	    > $$($(APART)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth
	$(BIN)/python .ci/extra.py test-apart > $(APART)/requirements.txt
	$(BIN)/python -m pip --python $(APART)/bin/python install --quiet --requirement $(APART)/requirements.txt
	touch $@

test-apart: $(APART)/.installed ## tests beside packages that hold a core dependency back (MLflow, flwr-datasets)
	OMP_NUM_THREADS=1 $(APART)/bin/python -m pytest -m apart tests/runtime tests/data/importers

REAL := slurm-wlm munge openssh-server rsync iproute2 strace procps
test-real: $(VENV)/.extras ## as root: beside a real Slurm, sshd, network namespaces, strace (Debian's packages are installed)
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(REAL) > /dev/null
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not apart" tests/cluster tests/search/test_resume.py \
	    tests/runtime/ray/test_neighbours.py tests/fuzz/test_strangers.py

check: $(STAMP) ## the budget of lines, ruff (rules and format) and mypy --strict
	$(BIN)/python .ci/budget.py
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

golden: $(STAMP) ## write anew what leaves a client (tests/golden/wire.txt) and which names stay (stays.txt)
	$(BIN)/python -m tests.golden.regenerate
	$(BIN)/python -m tests.golden.stays

.PHONY: help venv demo test test-browser test-slow extras test-apart test-real check docs golden
