# make demo, make test: both make the environment first. `make help` lists the rest.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS := .venv-docs
APART := .venv-apart
OLDEST := .venv-oldest
# What the fast tests are: the others have targets of their own.
QUICK := not slow and not browser and not apart and not extras
# Folders of tests whose files start no Ray and train little. CONTRIBUTING.md has what each folder may cost.
FAST := config core docs models results
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

demo: $(STAMP) ## ten client actors, four methods, a table and a plot in demo/
	rm -rf demo
	$(BIN)/raffed compare --method fedavg --method fedrs --method fedmr --method map \
	    --dataset digits --split p10c2 --local-test 0.2 --clients-per-actor 1 --rounds 20 --epochs 5 --batch-size 16 \
	    --out demo

test: $(STAMP) ## the tests (CONTRIBUTING.md says how long they take)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$(QUICK)" -n 2 --dist loadfile --no-loadscope-reorder

test-fast: $(STAMP) ## the tests of $(FAST), under 2 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "$(QUICK)" -n 2 --dist loadfile --no-loadscope-reorder \
	    $(addprefix tests/,$(FAST))

test-browser: $(STAMP) ## pages of reports in Chromium (skipped without it)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m browser tests/browser

test-slow: $(STAMP) ## the rest: more packings, more kills, real data
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not apart"

$(VENV)/.extras: $(STAMP)
	$(BIN)/python -m pip install --quiet --editable ".[dev,test-extras]"
	touch $@

extras: $(VENV)/.extras ## what tests of the extras need, in .venv: 2 minutes, 1 GB

test-extras: $(VENV)/.extras ## the longer tests of extras; `make test` has the others, skipped without `make extras`
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "extras and not slow" tests/results tests/runtime

# Environments with the packages of .venv beside some of their own, which come first.
beside = $(PYTHON) -m venv --clear --without-pip $(1) && \
	echo 'import site; site.addsitedir("$(abspath $(VENV))/lib/python$(shell $(PYTHON) -c "import sys; print(*sys.version_info[:2], sep=chr(46))")/site-packages")' \
	    > $$($(1)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth

$(APART)/.installed: $(STAMP) .ci/extra.py
	$(call beside,$(APART))
	$(BIN)/python .ci/extra.py test-apart > $(APART)/requirements.txt
	$(BIN)/python -m pip --python $(APART)/bin/python install --quiet --requirement $(APART)/requirements.txt
	touch $@

test-apart: $(APART)/.installed ## tests beside packages that hold a core dependency back (MLflow, flwr-datasets)
	OMP_NUM_THREADS=1 $(APART)/bin/python -m pytest -m apart tests/runtime tests/data/importers

$(OLDEST)/.installed: $(STAMP) pyproject.toml
	$(call beside,$(OLDEST))
	$(BIN)/python -m pip --python $(OLDEST)/bin/python install --quiet "ray[default,tune]==$$(sed -n 's/.*"ray\[.*\]>=\(.*\)",/\1/p' pyproject.toml).*"
	touch $@

test-oldest-ray: $(OLDEST)/.installed ## who may enter an own Ray, and runs on it, with the oldest Ray that pyproject.toml allows
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest tests/runtime/ray_backend/test_own_ray.py tests/runtime/ray_backend/test_neighbours.py \
	    tests/runtime/ray_backend/test_ray.py -m "not apart"

REAL := ceph-mon ceph-osd radosgw slurm-wlm munge openssh-server rsync iproute2 strace procps
test-real: $(VENV)/.extras ## as root: beside a real S3 (Ceph), Slurm, sshd, network namespaces, strace (Debian's packages are installed)
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(REAL) > /dev/null
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not apart" tests/cluster tests/results/test_s3.py tests/sweeps/test_resume.py \
	    tests/runtime/ray_backend/test_neighbours.py tests/fuzz/test_strangers.py

budget: $(STAMP) ## CPU seconds of every folder of the fast suite, beside what CONTRIBUTING.md allows it
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.budget

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

lock: ## resolve requirements.lock anew (needs uv), around the versions of .ci/pins.txt
	sed -n '/^#/p' requirements.lock > requirements.lock.new
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    -c .ci/pins.txt pyproject.toml >> requirements.lock.new
	mv requirements.lock.new requirements.lock

golden: $(STAMP) ## write tests/golden/wire.txt anew: what leaves a client, method by method
	$(BIN)/python -m tests.golden.regenerate

bench: $(STAMP) ## round time as a ratio to a bare PyTorch loop, in bench/ (RAFFED_DATA: the data; RAFFED_PEERS: Flower and pfl)
	$(BIN)/python -m tests.benchmarks.round_time --out bench/round_time.json

HISTORY := tests/benchmarks/history.jsonl
bench-history: $(STAMP) ## scale and the driver's load once more, and all measurements so far in bench/history.svg
	$(BIN)/python -m tests.benchmarks.driver_load --history $(HISTORY)
	$(BIN)/python -m tests.benchmarks.registered --history $(HISTORY)
	mkdir -p bench
	$(BIN)/python -m tests.benchmarks.history $(HISTORY) --out bench/history.svg

.PHONY: help venv demo extras test test-fast test-browser test-slow test-extras test-apart test-oldest-ray test-real budget check docs lock golden bench bench-history
