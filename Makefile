# Two commands for a user: make run, make test. The environment and the default weights come by themselves.

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FIGURES := retrieval safety ingest gateway engine

# llama.cpp, a peer of the engine's bench, lives apart: it is compiled here and is no part of the service.
PEERS ?= $(HOME)/.local/share/groundswell/peers

# A private local Ray for whatever make starts: never a cluster that happens to run on this machine.
export RAY_ADDRESS = local
export RAY_USAGE_STATS_ENABLED = 0
export TOKENIZERS_PARALLELISM = false

.PHONY: run test lint bench peers clean lock fetch

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

# Without AMX: a virtual machine may advertise it and trap. Takes cmake, a compiler and some ten minutes.
peers:
	$(PYTHON) -m venv $(PEERS)
	CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON \
	  -DGGML_AVX_VNNI=ON -DGGML_AVX512=ON -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AVX512_BF16=ON \
	  -DGGML_AMX_TILE=OFF -DGGML_AMX_INT8=OFF -DGGML_AMX_BF16=OFF -DMTMD_BUILD=OFF" \
	  $(PEERS)/bin/pip install --disable-pip-version-check --no-binary llama-cpp-python llama-cpp-python==0.3.36

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
