# `make demo` and `make test` do all their own set-up.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PYSPARK_PYTHON := $(CURDIR)/$(BIN)/python
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Tests leave nothing in the user's own cache.
warm-up test torture history: export ONCEBUS_CACHE := $(CURDIR)/$(VENV)/cache

.PHONY: setup java demo demo-dataframe warm-up test test-programs check torture history test-compat bench bench-broker clean

setup: java $(VENV)/.ready

java:
	@tools/need-java

$(VENV)/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[connect,dev]'
	@touch $@

demo: setup
	$(BIN)/python examples/demo.py

demo-dataframe: setup
	$(BIN)/python examples/dataframe_demo.py

# The tests drive the official JavaScript client and a browser, and make certificates.
test-programs:
	@tools/need node nodejs
	@tools/need npm npm
	@tools/need chromium chromium
	@tools/need openssl openssl

check: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

warm-up: setup
	@tools/warm-up $(BIN)/python

test: setup test-programs
	@$(MAKE) --no-print-directory --jobs 2 check warm-up
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

torture: setup test-programs warm-up
	$(BIN)/python -m pytest -m torture --verbosity=1 -o faulthandler_timeout=3600

# The operator's tests on the oldest Spark that is supported, which leaves sockets of its own to be closed by Python.
test-compat: java
	$(PYTHON) -m venv .venv-compat
	grep -v '^pyspark==' constraints.txt > .venv-compat/constraints.txt
	.venv-compat/bin/pip install --quiet --constraint .venv-compat/constraints.txt --editable '.[connect,dev]' 'pyspark==4.0.0'
	PYSPARK_PYTHON=$(CURDIR)/.venv-compat/bin/python .venv-compat/bin/python -m pytest \
		-W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning tests/spark tests/detection

bench: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench

bench-broker: setup
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/python -m bench.broker
	$(BIN)/python -m bench.amqp

clean:
	rm -rf $(VENV) .venv-compat build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
