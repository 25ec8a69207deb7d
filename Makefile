# Everything happens in one virtual environment, made once by `make venv`. Variables:
#   PYTHON           interpreter to start from, 3.11 or newer (default: python3)
#   VENV             where the environment goes (default: .venv)
#   TORCH_INDEX_URL  an index with CPU builds of torch; without it, PyPI's build is installed
#   PORT             port of the demo's servers (default: any free one)
#   SOAK_MINUTES     of load in `make soak` (default: 4); the faults take some five minutes more

PYTHON ?= python3
VENV ?= .venv
TORCH_INDEX_URL ?=
PORT ?=
SOAK_MINUTES ?= 4

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
STAMP := $(VENV)/.installed
NPU_VENV ?= .venv-npu
NPU_STAMP := $(NPU_VENV)/.installed
ASCEND_RELEASE ?= 0.23.0
ASCEND_REQUIREMENTS := requirements/ascend-engine-$(ASCEND_RELEASE).txt
ASCEND_VENV ?= .venv-ascend$(if $(filter-out 0.23.0,$(ASCEND_RELEASE)),-$(ASCEND_RELEASE))
ASCEND_STAMP := $(ASCEND_VENV)/.installed
REQUIREMENTS := $(wildcard requirements/*.txt)
TORCH := $(if $(TORCH_INDEX_URL),\
	--extra-index-url $(TORCH_INDEX_URL) -r requirements/torch.txt,\
	-r requirements/torch.txt -r requirements/torch-cuda-libs.txt)

DOCS_VENV ?= .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.installed

.PHONY: help venv demo test test-unit test-engines test-servers test-packaging test-contract-all \
	test-npu test-ascend test-matrix soak docs lint clean

help:
	@echo "make demo       serve the reference pair with and without the plugin, print one table"
	@echo "make test       all tests; those in tests/e2e start real servers"
	@echo "make test-unit  the tests that start no engine"
	@echo "make test-packaging  wheels, installing, uninstalling, the Dockerfile's commands"
	@echo "make soak       a server under load for minutes, and faults; report in build/soak (15 minutes)"
	@echo "make test-contract-all  the hook table against every release of both hosts (downloads them)"
	@echo "make test-npu   the NPU operators on the real torch_npu, over a fake runtime (own environment)"
	@echo "make test-ascend  engines of the real vllm-ascend, over the same runtime (own environment);"
	@echo "                  ASCEND_RELEASE=0.23.0 (default) or 0.26.0rc1"
	@echo "make test-matrix  the served pair on other releases of vLLM (own environments, some 10 GB)"
	@echo "make docs       the documentation, English and Chinese, into build/site (own environment)"
	@echo "make lint       ruff and mypy"
	@echo "make venv       only install (the others do so when needed)"
	@echo "make clean      remove the environment, caches and logs"

venv: $(STAMP)

# pip is upgraded first: the one of an older Python is slow and does not know every wheel tag.
# --no-deps: the requirement files are complete, so there is nothing to resolve.
$(STAMP): $(REQUIREMENTS) pyproject.toml tools/vllm_distribution.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "error: $(PYTHON) is not Python 3.11 or newer: make PYTHON=python3.11" >&2; exit 1; }
	@echo "[1/4] environment $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --disable-pip-version-check -r requirements/pip.txt
	@echo "[2/4] vLLM's CPU engine and the tools (first time: some 2 GB to download)"
	@$(PIP) install --no-deps -r requirements/engine-cpu.txt -r requirements/dev.txt $(TORCH)
	@echo "[3/4] the distribution name that vLLM's command line asks for"
	@$(BIN)/python tools/vllm_distribution.py
	@echo "[4/4] this package"
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)
	@$(BIN)/python -m tools.demo $(if $(PORT),--port $(PORT))

# Engines beside servers: both spend half of their time on one core, importing and loading. More than
# these two at once take longer, and too much memory.
test: test-unit
	$(MAKE) --jobs=2 --output-sync=target test-engines test-servers

test-engines: $(STAMP)
	$(BIN)/python -m pytest -m "engine and not e2e"

test-servers: $(STAMP)
	$(BIN)/python -m pytest -m e2e

test-unit: $(STAMP)
	$(BIN)/python -m pytest -m "not e2e and not engine and not packaging" -n auto --maxprocesses 4

# With the environment of test-npu also the NPU kernels, built by CMake as the Dockerfile does it.
test-packaging: $(STAMP)
	$(BIN)/python -m pytest tests/packaging

soak: $(STAMP)
	EAGLE3_QUAROT_SOAK_MINUTES=$(SOAK_MINUTES) EAGLE3_QUAROT_SOAK_REPORT=build/soak \
		$(BIN)/python -m pytest tests/reliability -m "soak or e2e"

# An installed torch_npu changes what `import torch` does, so it gets an environment of its own.
$(NPU_STAMP): $(STAMP) requirements/npu-runtime.txt
	@$(BIN)/python -m tests.kernels.npu_runtime.make_environment $(NPU_VENV)
	@touch $@

test-npu: $(NPU_STAMP)
	EAGLE3_QUAROT_NPU_VENV=$(abspath $(NPU_VENV))/bin/python \
		$(BIN)/python -m pytest tests/kernels/npu_runtime

# The last line: a release that brings a vLLM of its own needs that distribution's name as well.
$(ASCEND_STAMP): $(STAMP) $(ASCEND_REQUIREMENTS) requirements/npu-runtime.txt
	@$(BIN)/python -m tests.kernels.npu_runtime.make_environment $(ASCEND_VENV) \
		$(ASCEND_REQUIREMENTS)
	@$(ASCEND_VENV)/bin/python tools/vllm_distribution.py
	@touch $@

# ASCEND_TESTS="-k smoke" for the shortest run; ASCEND_RELEASE=0.26.0rc1 for another release.
test-ascend: $(ASCEND_STAMP)
	EAGLE3_QUAROT_ASCEND_VENV=$(abspath $(ASCEND_VENV))/bin/python \
		$(BIN)/python -m pytest tests/ascend $(ASCEND_TESTS)

# RELEASES="0.26.0 0.32.0" for some of them.
test-matrix: $(STAMP)
	$(if $(TORCH_INDEX_URL),PIP_EXTRA_INDEX_URL=$(TORCH_INDEX_URL)) \
		$(BIN)/python -m tools.engine_matrix $(RELEASES)

$(DOCS_STAMP): requirements/docs.txt
	@$(PYTHON) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r $<
	@touch $@

docs: $(DOCS_STAMP)
	$(DOCS_VENV)/bin/mkdocs build --strict --quiet

# Sources only: nothing of these releases is installed. Kept in $$EAGLE3_QUAROT_RELEASES.
test-contract-all: $(STAMP)
	EAGLE3_QUAROT_ALL_RELEASES=1 $(BIN)/python -m pytest tests/contract/wheels

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) $(NPU_VENV) .venv-ascend* $(ASCEND_VENV) $(DOCS_VENV) .matrix .logs .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
