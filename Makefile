# `make` shows what there is. Works with GNU make 3.81 (macOS) and later.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# The environment remembers which torch it was made with.
ifndef TORCH
TORCH := $(or $(shell cat $(VENV)/torch 2>/dev/null),default)
endif
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
UV = uv==0.13.8

RUN = $(VENV)/bin/python
PIP = $(RUN) -m pip --disable-pip-version-check
COMPILE = .tools/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet $(ARGS)

.DEFAULT_GOAL := help
.PHONY: help demo test lint install lock clean
.DELETE_ON_ERROR:

help:  ## Show this
	@echo 'make TARGET [PYTHON=python3.12] [TORCH=cpu] [ARGS="..."]'
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON  the Python to make $(VENV) with: 3.11, 3.12 or 3.13, with venv (Debian: apt-get install python3-venv)'
	@echo "TORCH   cpu takes torch from PyTorch's own CPU index, a third of the download; untested where we cannot reach it"
	@echo 'ARGS    handed on, as in: make test ARGS="tests/unit -k store", make lock ARGS=--upgrade'

demo: $(VENV)/ready  ## Run the whole pipeline on real text, a few minutes on two cores; prints the table and the report
	$(RUN) -m tlm.demo demo/data
	$(RUN) -m pipelines.run local --params pipelines/params/demo.yaml $(ARGS)

test: $(VENV)/ready  ## Run all tests
	$(RUN) -m pytest $(ARGS)

lint: $(VENV)/ready  ## Check style, format and types
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

install: $(VENV)/ready  ## Make .venv with the locked packages and tlm in it (the other targets do this when needed)

lock: .tools/bin/uv pyproject.toml  ## Make both requirements files; keeps the versions that fit (ARGS=--upgrade: the newest)
	$(COMPILE) --extra train --extra pipelines --extra dev --output-file requirements.txt
	$(COMPILE) --constraint requirements.txt --output-file requirements-data.txt

clean:  ## Remove .venv, tools and caches; artifacts, data and reports stay
	rm -rf $(VENV) .tools build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: $(VENV)/locked pyproject.toml
	$(PIP) install --no-deps --editable .
	@touch $@

# Made anew when the lock changes, so that nothing is left from an older one.
$(VENV)/locked: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2> /dev/null || \
		{ echo '$(PYTHON) is not Python 3.11, 3.12 or 3.13; name one: make PYTHON=python3.12 ...' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
		{ echo '$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
	@echo 'Making $(VENV): some minutes, once.'
	$(PYTHON) -m venv --clear $(VENV)
ifeq ($(TORCH),cpu)
	$(PIP) install --no-deps --index-url $(TORCH_CPU_INDEX) "$$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' requirements.txt)"
	awk '/^[a-z]/ { keep = !/^(torch=|triton=|nvidia-|cuda-)/ } keep' requirements.txt > $(VENV)/requirements.txt
	$(PIP) install --require-hashes --requirement $(VENV)/requirements.txt
else
	$(PIP) install --require-hashes --requirement requirements.txt
endif
	@echo $(TORCH) > $(VENV)/torch
	@touch $@

.tools/bin/uv: Makefile
	$(PYTHON) -m venv --clear .tools
	.tools/bin/python -m pip --disable-pip-version-check install --quiet $(UV)
	@touch $@
