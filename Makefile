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
COMPILE = .tools/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet $(ARGS)

# Images: REGISTRY/tlm-data and REGISTRY/tlm-train, their tag is version and revision.
REGISTRY ?= ghcr.io/tlm-kubeflow
BASE_IMAGE ?=
BUILD_ARGS ?=
# The first client that can build with BuildKit (since version 23 that takes the buildx plugin).
DOCKER ?= $(or $(shell for client in docker /usr/bin/docker; do \
	DOCKER_BUILDKIT=1 $$client build --help 2> /dev/null | grep -q -e --secret && echo $$client && break; done),docker)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tlm/__init__.py)
REVISION = $(or $(shell git describe --always --dirty --exclude '*' 2> /dev/null),unknown)
SOURCE = $(filter https://%,$(shell git config remote.origin.url 2> /dev/null | sed 's,//[^/]*@,//,'))
# Only when it is asked for, not because .venv has it: on a GPU the CPU's torch is of no use.
CPU = $(if $(filter command environment,$(firstword $(origin TORCH))),$(filter cpu,$(TORCH)))
TAG = $(VERSION)-$(REVISION)$(if $(CPU),-cpu)
comma = ,
BUILD = DOCKER_BUILDKIT=1 $(DOCKER) build --file docker/Dockerfile \
	$(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) $(if $(CPU),--build-arg TORCH_INDEX=$(TORCH_CPU_INDEX)) \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(if $(SOURCE),--build-arg SOURCE=$(SOURCE)) \
	$(if $(PIP_CERT),--secret id=ca$(comma)src=$(PIP_CERT)) \
	$(if $(PIP_CONFIG_FILE),--secret id=pip$(comma)src=$(PIP_CONFIG_FILE)) $(BUILD_ARGS)
DIGEST = $(DOCKER) image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' $(REGISTRY)/tlm-$(1):$(TAG) | \
	grep -m 1 '^$(REGISTRY)/tlm-$(1)@'
NAME_IMAGES = mkdir -p build && printf '{"data": "%s", "train": "%s"}\n' "$$data" "$$train" | tee build/images.json

.DEFAULT_GOAL := help
.PHONY: help demo test lint chaos install lock images push sbom kind-up kind-run kind-down clean
.DELETE_ON_ERROR:

help:  ## Show this
	@echo 'make TARGET [PYTHON=python3.12] [TORCH=cpu] [ARGS="..."]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-9s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON  the Python to make $(VENV) with: 3.11, 3.12 or 3.13, with venv (Debian: apt-get install python3-venv)'
	@echo "TORCH   cpu takes torch from PyTorch's own CPU index, a third of the download; untested where we cannot reach it"
	@echo 'ARGS    handed on, as in: make test ARGS="tests/unit -k store", make lock ARGS=--upgrade'
	@echo
	@echo 'make images [REGISTRY=ghcr.io/me] [BASE_IMAGE=python:3.12-slim] [TORCH=cpu] [BUILD_ARGS="..."] [DOCKER=...]'
	@echo 'PIP_CERT and PIP_CONFIG_FILE, if they are set, name files for the pip inside: authorities to trust, an index'

demo: $(VENV)/ready  ## Run the whole pipeline on real text, a few minutes on two cores; prints the table and the report
	$(RUN) -m tlm.demo demo/data
	$(RUN) -m pipelines.run local --params pipelines/params/demo.yaml $(ARGS)

test: $(VENV)/ready  ## Run all tests
	$(RUN) -m pytest $(ARGS)

lint: $(VENV)/ready  ## Check style, format, types and docstrings
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m tests.prose

chaos: $(VENV)/ready $(if $(filter input,$(PART)),build/fuzz)  ## Try at length to break it: PART=kill|corrupt|elastic|s3|input|security|load; without, the table
	@PYTHONPATH=build/fuzz $(RUN) -m tests.faults.chaos $(PART) $(ARGS)

# The fuzzer is no part of the product's locks; where there is no wheel of it, the rest is tried without it.
build/fuzz:
	$(PIP) install --quiet --no-deps --only-binary :all: --target $@ atheris==3.0.0 || mkdir -p $@

install: $(VENV)/ready  ## Make .venv with the locked packages and tlm in it (the other targets do this when needed)

lock: .tools/bin/uv pyproject.toml  ## Make the requirements files; keeps the versions that fit (ARGS=--upgrade: the newest)
	$(COMPILE) pyproject.toml --extra train --extra pipelines --extra dev --output-file requirements.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --output-file requirements-data.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --extra train --output-file requirements-train.txt
	echo 'cyclonedx-bom>=7,<8' | $(COMPILE) - --output-file docker/requirements-sbom.txt

images:  ## Build both container images; their names go to build/images.json
	$(BUILD) --target data --tag $(REGISTRY)/tlm-data:$(TAG) .
	$(BUILD) --target train --tag $(REGISTRY)/tlm-train:$(TAG) .
	@data=$(REGISTRY)/tlm-data:$(TAG) train=$(REGISTRY)/tlm-train:$(TAG); $(NAME_IMAGES)

push: images  ## Push both images; build/images.json then names them by digest
	$(DOCKER) push $(REGISTRY)/tlm-data:$(TAG)
	$(DOCKER) push $(REGISTRY)/tlm-train:$(TAG)
	@data=$$($(call DIGEST,data)) && train=$$($(call DIGEST,train)) && $(NAME_IMAGES)

sbom:  ## Write what is in the images to build/sbom, as CycloneDX
	$(BUILD) --target sbom --output build/sbom .

kind-up:  ## Make a cluster on this machine (kind) with KFP, Elasticsearch and the images; needs `make images TORCH=cpu`
	k8s/kind/up.sh

kind-run: $(VENV)/ready  ## Run the pipeline there twice: as here the first time, nothing written the second
	PYTHON=$(RUN) k8s/kind/run.sh

kind-down:  ## Remove that cluster
	k8s/kind/down.sh

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
