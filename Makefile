# `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Tests leave nothing in the user's own cache.
warm-up test torture history: export ONCEBUS_CACHE := $(CURDIR)/$(VENV)/cache

.DEFAULT_GOAL := help
.PHONY: help setup java demo demo-dataframe warm-up test test-programs check torture history test-compat bench bench-broker docs clean

help:
	@sed -n 's/^\([a-z-]*\):.*## /\1: /p' $(MAKEFILE_LIST) | column -t -s : -l 2

setup: java $(VENV)/.ready ## install everything into .venv

java:
	@tools/need-java

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[connect,dev]'
	@touch $@

demo: setup ## run the broker and send 10 000 messages through it
	$(BIN)/python examples/demo.py

demo-dataframe: setup ## detect duplicates in a generated DataFrame
	$(BIN)/python examples/dataframe_demo.py

# The tests drive the official JavaScript client and a browser.
test-programs:
	@tools/need node nodejs
	@tools/need npm npm
	@tools/need chromium chromium

check: setup ## lint and type-check
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	@$(MAKE) --no-print-directory docs

warm-up: setup
	@tools/warm-up $(BIN)/python

test: setup test-programs ## check and test everything
	@$(MAKE) --no-print-directory --jobs 2 check warm-up
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

torture: setup test-programs warm-up ## run the long tests: kills, fuzzing, many connections
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[fuzz]'
	$(BIN)/python -m pytest -m torture --verbosity=1 -o faulthandler_timeout=3600

# HISTORY_SEED and HISTORY_FAULTS play one again; FILE checks one that was written before.
history: setup warm-up ## use the broker at random under random faults, and check the history
	cd tests && $(CURDIR)/$(BIN)/python -m history $(FILE)

# The operator's tests on the oldest Spark that is supported, which leaves sockets of its own to be closed by Python.
test-compat: java ## run the operator's tests on the oldest supported PySpark
	$(PYTHON) -m venv .venv-compat
	grep -v '^pyspark==' constraints.txt > .venv-compat/constraints.txt
	.venv-compat/bin/pip install --quiet --constraint .venv-compat/constraints.txt --editable '.[connect,dev]' 'pyspark==4.0.0'
	PYSPARK_PYTHON=$(CURDIR)/.venv-compat/bin/python .venv-compat/bin/python -m pytest \
		-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark tests/detection

bench: setup ## measure the operator beside Spark's own
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

clean: ## delete everything that can be made again
	rm -rf $(VENV) .venv-compat build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
