# Two commands for a user: make run, make test. The environment and the default weights come by themselves.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FIGURES := retrieval safety ingest gateway

# A private local Ray for whatever make starts: never a cluster that happens to run on this machine.
export RAY_ADDRESS = local
export RAY_USAGE_STATS_ENABLED = 0
export TOKENIZERS_PARALLELISM = false

.PHONY: run test lint bench clean lock fetch

run: $(READY)
	@exec $(BIN)/groundswell run

test: $(READY) fetch
	$(BIN)/pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) fetch
	for name in $(FIGURES); do $(BIN)/python -m bench.$$name --quick || exit 1; done

fetch: $(READY)
	$(BIN)/groundswell fetch

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): requirements.lock pyproject.toml
	@echo "making $(VENV) with the pinned requirements (some minutes the first time)" >&2
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

# torch's local version label (+cpu) names a wheel that only some machines have.
lock:
	$(BIN)/pip-compile --quiet --extra dev --strip-extras --no-emit-index-url --no-emit-find-links \
	  --no-emit-trusted-host --no-header --output-file requirements.lock pyproject.toml
	sed -i 's/^\(torch==[0-9.]*\)+cpu/\1/' requirements.lock
