# `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)

.DEFAULT_GOAL := help
.PHONY: help setup java demo demo-dataframe warm-up test test-all test-fast test-az test-programs test-all-programs check lint types torture history simulate mutate test-compat test-pythons bench bench-quick bench-broker docs dist image test-image clean

help: ## list all targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: java $(VENV)/.ready warm-up ## install everything into .venv

java: ## check that there is Java 17 or later, and install it on Debian if there is none
	@tools/need-java

$(VENV)/.ready: pyproject.toml constraints.txt
	@echo 'Installing Oncebus, Spark and the tools for tests into $(VENV). This takes some minutes and 1.7 GB, once.'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[connect,dev]'
	@touch $@

demo: setup ## send messages through a broker as fast as the official client can; KEEP=1 leaves the broker running
	$(BIN)/python examples/demo.py $(if $(KEEP),--keep)

demo-dataframe: setup ## detect duplicates in a generated DataFrame
	$(BIN)/python examples/dataframe_demo.py

# The tests drive the official JavaScript client and a browser, and start a database server.
test-programs: ## check that there is what the tests need, and install it on Debian if not
	@tools/need node nodejs
	@tools/need npm npm
	@tools/need chromium chromium
	@tools/need-postgres

test-all-programs: test-programs ## check that there is what all tests need, and install it on Debian if not
	@tools/need promtool prometheus

check: ## lint, check the types and build the documentation, two at a time
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types lint docs

lint: setup ## check format, style and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo

types: setup ## check the types
	$(BIN)/mypy

# Without the archive Spark starts too, only later.
warm-up: java $(VENV)/.ready ## build the cache that speeds up Spark's start
	@$(BIN)/oncebus warm-up || echo 'Spark will start more slowly.' >&2

# The processes that tests start import compiled modules sooner.
unexport PYTHONDONTWRITEBYTECODE

# Sets have the same order in each run; `make torture` has another order each time.
test test-all test-fast: export PYTHONHASHSEED := 0

# Files in memory need no disk to wait for. A container may have too little of it.
test-fast: export PYTEST_DEBUG_TEMPROOT := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -n 1)" -gt 2000000 2>/dev/null && echo /dev/shm)
test-fast: setup ## run the tests that need neither Spark, browser nor other processes
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow and not torture'

# Three processes for two cores: tests often wait for a broker or a client.
PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 25

test: setup test-programs check ## check, and test every guarantee
	$(PYTEST) -m 'not torture and not release'

test-all: setup test-all-programs check ## check and test everything, with all variants, as a release must pass it
	$(PYTEST)

# az is installed apart: it takes 700 MB, and insists on versions of its own.
test-az: setup ## run az itself, unmodified, against a broker
	$(PYTHON) -m venv build/az
	build/az/bin/pip install --quiet 'azure-cli==2.91.0'
	$(BIN)/python -m tests.az build/az/bin/az

# SEED draws the same again; `.hypothesis` keeps the examples that failed.
torture: SEED := $(or $(SEED),$(shell date +%s))
torture: setup test-programs ## run the long tests (kills, fuzzing, many connections), and property tests at random
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m pytest -m 'torture or hypothesis' --seed $(SEED) --verbosity=1 -o faulthandler_timeout=3600

# HISTORY_SEED and HISTORY_FAULTS play one again; FILE checks one that was written before.
history: setup ## use the broker at random under random faults, and check the history
	$(BIN)/python -m tests.history $(FILE)

# SEED begins elsewhere, LIVES or MINUTES end it; WORLD=ledger simulates a ledger alone.
simulate: setup ## simulate a broker on virtual time, with power cuts and other faults; each life has a seed
	$(BIN)/python -m tests.simulation --world $(or $(WORLD),broker) --seed $(or $(SEED),$(shell date +%s)) --lives $(or $(LIVES),1000) --minutes $(or $(MINUTES),10)

# AREAS, FAULTS and SEED choose.
mutate: setup ## plant random one-line faults, and show those that no test notices
	$(BIN)/python -m tests.mutants --faults $(or $(FAULTS),500) --seed $(or $(SEED),1) $(AREAS)

# The operator's tests on the oldest Spark that is supported, which leaves sockets of its own to be closed by Python.
test-compat: java ## run the operator's tests on the oldest supported PySpark
	$(PYTHON) -m venv .venv-compat
	grep -v '^pyspark==' constraints.txt > .venv-compat/constraints.txt
	.venv-compat/bin/pip install --quiet --constraint .venv-compat/constraints.txt --editable '.[connect,dev]' 'pyspark==4.0.0'
	PYSPARK_PYTHON=$(CURDIR)/.venv-compat/bin/python .venv-compat/bin/python -m pytest \
		-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark tests/detection

test-pythons: java ## run the fast tests and the demo on Python 3.11, 3.12 and 3.13, as far as they are installed
	@tools/test-pythons

bench-quick: setup ## measure what matters in five minutes: broker and operator beside their rivals
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench.quick

bench: setup ## measure the operator beside Spark's own, in all scenarios
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench

bench-broker: setup ## measure the broker, the official clients and NATS
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench.broker
	$(BIN)/python -m bench.noisy
	$(BIN)/python -m bench.amqp

# Not --quiet: that hides the warnings from --strict too.
docs: setup ## build the documentation site into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

dist: setup ## build the wheel and the source distribution into dist
	rm -rf dist
	$(BIN)/python tools/dist.py

# BASE builds on an image from a registry instead of Debian packages; IMAGE names the result.
image: $(VENV)/.ready ## build the container image with buildah; needs no Docker engine
	PYTHON=$(BIN)/python tools/image $(or $(IMAGE),oncebus)

test-image: setup ## build the container image and use it with the official client
	$(BIN)/python -m pytest --verbosity=1 tests/deploy/test_image.py

clean: ## delete everything that can be made again
	rm -rf $(VENV) .venv-* build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
