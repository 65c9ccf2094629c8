# `make` lists the targets. Works with GNU make 3.81 (macOS) and later.

PYTHON ?= python3
VENV ?= .venv
ARGS ?=
# Default to the torch that the environment was created with.
ifndef TORCH
TORCH := $(or $(shell cat $(VENV)/torch 2>/dev/null),default)
endif
TORCH_CPU_INDEX ?= https://download.pytorch.org/whl/cpu
UV = uv==0.13.8

RUN = $(VENV)/bin/python
PIP = $(RUN) -m pip --disable-pip-version-check
COMPILE = .tools/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links --quiet $(ARGS)

# Images: REGISTRY/tlm-data, REGISTRY/tlm-train and REGISTRY/tlm-serve, tagged with version and revision.
REGISTRY ?= ghcr.io/tlm-kubeflow
BASE_IMAGE ?=
BUILD_ARGS ?=
# The first docker client that can build with BuildKit (from version 23, this needs the buildx plugin).
DOCKER ?= $(or $(shell for client in docker /usr/bin/docker; do \
	DOCKER_BUILDKIT=1 $$client build --help 2> /dev/null | grep -q -e --secret && echo $$client && break; done),docker)
VERSION = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' tlm/__init__.py)
REVISION = $(or $(shell git describe --always --dirty --exclude '*' 2> /dev/null),unknown)
SOURCE = $(filter https://%,$(shell git config remote.origin.url 2> /dev/null | sed 's,//[^/]*@,//,'))
# Images get the CPU build of torch only on request, not because .venv has it: it cannot use a GPU.
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
NAME_IMAGES = mkdir -p build && printf '{"data": "%s", "train": "%s", "serve": "%s"}\n' "$$data" "$$train" "$$serve" | \
	tee build/images.json

.DEFAULT_GOAL := help
.PHONY: help demo demo-encoders test test-slow test-all lint generated chaos install install-light lock images push sbom kind-up kind-run kind-down clean
.DELETE_ON_ERROR:

help:  ## Show this help
	@echo 'make TARGET [PYTHON=python3.12] [TORCH=cpu] [ARGS="..."]'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo 'PYTHON  the Python for $(VENV): 3.11 to 3.14, with venv (Debian: apt-get install python3-venv)'
	@echo "TORCH   cpu installs torch from PyTorch's CPU index, a third of the download; not tested by us"
	@echo 'ARGS    passed on, as in: make test ARGS="tests/unit -k store", make lock ARGS=--upgrade'
	@echo
	@echo 'make images [REGISTRY=ghcr.io/me] [BASE_IMAGE=python:3.12-slim] [TORCH=cpu] [BUILD_ARGS="..."] [DOCKER=...]'
	@echo 'PIP_CERT and PIP_CONFIG_FILE, if set, are passed to pip in the build: a CA bundle, a pip.conf'

# Everything, where it is installed already.
LIGHT = $(if $(wildcard $(VENV)/ready),$(VENV)/ready,$(VENV)/light)

demo: $(LIGHT)  ## Retrieve text for a task and train models without a neural network (two minutes on two cores); print the report
	$(RUN) -m demo demo/data
	$(RUN) -m pipelines.run local --params pipelines/params/demo.yaml --pipeline shallow $(ARGS)

demo-encoders: $(VENV)/ready  ## Train encoders on the same data (three minutes more); print the report of all models
	$(RUN) -m demo demo/data
	$(RUN) -m pipelines.run local --params pipelines/params/demo.yaml $(ARGS)

# With that variable, each of the thousands of processes that tests start would compile all modules again.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(RUN) -m pytest --durations 25

test: $(VENV)/ready  ## Run the quick tests, two at a time: no servers, images or fetched tools
	$(PYTEST) -m 'not slow' -n 2 --dist worksteal $(ARGS)

# File by file, in order: the longest come early, short ones last (tests/conftest.py). tests/workers.py says which files
# stay in one process.
test-slow: $(VENV)/ready  ## Run the slow tests, two at a time: servers, containers, manifests, faults, pipelines
	$(PYTEST) -m slow -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all:  ## Run all tests, quick and slow
	$(MAKE) --keep-going test test-slow

lint: $(VENV)/ready  ## Check style, format, types and docstrings
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -m tests.prose

generated: $(VENV)/ready  ## Write what is made from the code: the compiled pipeline in tests/golden, tables in docs
	$(RUN) -m pipelines.run compile -o tests/golden/tlm.yaml --images tests/golden/images.json
	$(RUN) -m tests.commands_page

chaos: $(VENV)/ready $(if $(filter input,$(PART)),build/fuzz)  ## Run the long fault tests: PART=kill|corrupt|elastic|s3|input|security|load|kubeflow; without PART, print the results
	@PYTHONPATH=build/fuzz $(RUN) -m tests.faults.chaos $(PART) $(ARGS)

# The fuzzer is not in the lock files. If it has no wheel for this platform, the other tests run without it.
build/fuzz:
	$(PIP) install --quiet --no-deps --only-binary :all: --target $@ atheris==3.0.0 || mkdir -p $@

install: $(VENV)/ready  ## Create .venv with the locked packages and tlm (other targets do this when needed)

install-light: $(LIGHT)  ## The same without PyTorch: for models without a neural network and to submit runs to a cluster

lock: .tools/bin/uv pyproject.toml  ## Write the requirements files; keep versions that fit (ARGS=--upgrade: take the newest)
	$(COMPILE) pyproject.toml --extra train --extra pipelines --extra dev --output-file requirements.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --extra pipelines --extra serve \
		--output-file requirements-light.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --output-file requirements-data.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --extra train --extra embeddings \
		--output-file requirements-train.txt
	$(COMPILE) pyproject.toml --constraint requirements.txt --extra serve --excludes docker/not-in-serve.txt \
		--output-file requirements-serve.txt
	echo 'cyclonedx-bom>=7,<8' | $(COMPILE) - --output-file docker/requirements-sbom.txt

images:  ## Build the three container images; write their names to build/images.json
	$(BUILD) --target data --tag $(REGISTRY)/tlm-data:$(TAG) .
	$(BUILD) --target train --tag $(REGISTRY)/tlm-train:$(TAG) .
	$(BUILD) --target serve --tag $(REGISTRY)/tlm-serve:$(TAG) .
	@data=$(REGISTRY)/tlm-data:$(TAG) train=$(REGISTRY)/tlm-train:$(TAG) serve=$(REGISTRY)/tlm-serve:$(TAG); $(NAME_IMAGES)

push: images  ## Push the images; write their digests to build/images.json
	$(DOCKER) push $(REGISTRY)/tlm-data:$(TAG)
	$(DOCKER) push $(REGISTRY)/tlm-train:$(TAG)
	$(DOCKER) push $(REGISTRY)/tlm-serve:$(TAG)
	@data=$$($(call DIGEST,data)) && train=$$($(call DIGEST,train)) && serve=$$($(call DIGEST,serve)) && $(NAME_IMAGES)

sbom:  ## Write the contents of the images to build/sbom, as CycloneDX
	$(BUILD) --target sbom --output build/sbom .

kind-up:  ## Create a local cluster (kind) with KFP, Elasticsearch and the images; needs `make images TORCH=cpu`
	k8s/kind/up.sh

kind-run: $(VENV)/ready  ## Check its network policies, and run the pipeline twice: as here, then without writing anything
	PYTHON=$(RUN) k8s/kind/run.sh

kind-down:  ## Delete that cluster
	k8s/kind/down.sh

clean:  ## Delete .venv, tools and caches; keep artifacts, data and reports
	rm -rf $(VENV) .tools build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: $(VENV)/locked pyproject.toml
	$(PIP) install --no-deps --editable .
	@touch $@

$(VENV)/light: requirements-light.txt pyproject.toml
	$(create)
	$(PIP) install --require-hashes --requirement requirements-light.txt
	$(PIP) install --no-deps --editable .
	@touch $@

define create
@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2> /dev/null || \
	{ echo '$(PYTHON) is not Python 3.11 to 3.14; choose one: make PYTHON=python3.12 ...' >&2; exit 1; }
@$(PYTHON) -c 'import ensurepip, venv' 2> /dev/null || \
	{ echo '$(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv' >&2; exit 1; }
@echo 'Creating $(VENV): this takes a minute or more, once.'
$(PYTHON) -m venv --clear $(VENV)
endef

# Recreated when the lock changes, so that nothing remains from an older one.
$(VENV)/locked: requirements.txt
	$(create)
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
