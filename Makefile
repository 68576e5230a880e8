# Both `make run` and `make test` do all their own set-up: a virtual environment, pinned packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: run test check fmt bench torture acceptance clean help

help:
	@echo "make run        start the gateway (console chat; offline model if nothing is configured)"
	@echo "make test       everything that proves the product, make check included"
	@echo "make check      format, lint, types, import contracts"
	@echo "make fmt        format the code"
	@echo "make bench      speed and memory as ratios against a limit twin"
	@echo "make torture    the long variants of the kill and fault tests"

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing posthouse and its pinned dependencies into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

run: $(STAMP)
	@$(BIN)/posthouse run

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check
	$(BIN)/python -m pytest -m "not torture and not bench and not real_model"

torture: $(STAMP)
	$(BIN)/python -m pytest -m torture --timeout 5400

bench: $(STAMP)
	$(BIN)/python -m tests.bench

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
