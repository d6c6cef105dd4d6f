# Every routine task of this project is a target; `make help` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
VENV   := .venv
AGENTS := build/agents
CLIENTS := build/clients
PEERS  := build/peers
AUDIT  := build/audit
LOCK   := build/lock
LOCKED := requirements/locked
BIN    := $(VENV)/bin
ARGS   ?=

export TOKENIZERS_PARALLELISM := false
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Servers and tests start many interpreters, which should not compile the same modules each time.
export PYTHONDONTWRITEBYTECODE :=

# Tests run in parallel: numeric libraries must not compete for the cores.
check test quick coverage test-slow test-chart test-agents test-transformers: export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install develop serve dashboard tour chat doctor observe check quick test test-slow test-chart test-agents
.PHONY: test-transformers coverage
.PHONY: lint types dead audit lock format hooks bench peers soak docs proto clean

help: ## List the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.base: pyproject.toml requirements/torch.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements/torch.txt
	$(BIN)/python -m pip install --quiet -c requirements/torch.txt -e '.[grpc]'
	@touch $@

$(VENV)/.dashboard: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -c requirements/torch.txt -e '.[dashboard]'
	@touch $@

$(VENV)/.develop: $(VENV)/.base
	$(BIN)/python -m pip install --quiet -c requirements/torch.txt -e '.[bench,dashboard,train,test,lint]'
	@touch $@

install: $(VENV)/.base ## Create .venv and install the server into it, gRPC included
	@echo 'Installed as $(BIN)/quire. To have it on your PATH: source $(BIN)/activate'

develop: $(VENV)/.develop ## Install what tests, linters and benchmarks need, too

serve: $(VENV)/.base ## Serve the embedded model on http://127.0.0.1:8000 (ARGS="MODEL --flags")
	@$(BIN)/quire serve $(ARGS)

dashboard: $(VENV)/.dashboard ## Open the live dashboard and playground on http://127.0.0.1:8501
	@$(BIN)/quire dashboard $(ARGS)

tour: $(VENV)/.dashboard ## Watch five guided minutes on a simulated server: shared prefixes, a flood, a killed engine
	@$(BIN)/python -m dashboard.tour $(ARGS)

chat: $(VENV)/.base ## Talk to the running server in this terminal
	@$(BIN)/quire chat $(ARGS)

observe: $(VENV)/.base ## Start Prometheus and alertmanager with Quire's rules against the running server
	@$(BIN)/python -m observability.observe $(ARGS)

doctor: $(VENV)/.base ## Report what Quire can use on this machine, what is missing and how to get it
	@$(BIN)/quire doctor $(ARGS)

# The JavaScript clients that tests drive. Without npm or its registry those tests are skipped.
$(CLIENTS)/.installed: tests/e2e/javascript/package.json
	mkdir -p $(CLIENTS)
	cp tests/e2e/javascript/package.json $(CLIENTS)/
	-npm install --prefix $(CLIENTS) --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel error && touch $@

check: lint dead test test-chart ## All that CI checks before a change lands

# For the edit loop. tests/quick.py selects the files; a test that starts a process is skipped.
quick: $(VENV)/.develop ## Run the tests that do not start a process, in under a minute (ARGS="-k name")
	$(BIN)/python -m pytest --quick -m "not slow" -n 2 -q -r fE -p no:logging $(ARGS)

# In CI, a few failed tests are run again, alone (tests/again.py). pytest exits with 1 if tests failed.
AGAIN := $(if $(CI),|| { [ $$? = 1 ] && $(BIN)/python -m tests.again; })

# One more than there are cores, because many tests wait for processes, but each takes 1.2 GB. Files in
# the order of their folders: those that wait most come first, and the last ones are short.
PYTEST := $(BIN)/python -m pytest -n $(shell cores=$$(nproc); echo $$((cores < 7 ? cores + 1 : 8))) \
	--dist loadfile --no-loadscope-reorder --max-worker-restart 0 -q

test: $(VENV)/.develop $(if $(shell command -v npm),$(CLIENTS)/.installed) ## Run the tests (ARGS="-k name")
	$(PYTEST) -m "not slow and not chart and not agents" $(ARGS) $(AGAIN)

test-slow: $(VENV)/.develop ## Run the long tests: kernels, hostile grammars, ranks against one process
	$(BIN)/python -m pytest -m slow -q $(ARGS)

test-chart: $(VENV)/.develop ## Lint and render the Helm chart on helm 3 and 4, check the Dockerfile
	$(PYTEST) -m "chart and not slow" tests/chart $(ARGS) $(AGAIN)

$(AGENTS)/.installed: tests/agents/package.json
	mkdir -p $(AGENTS)
	cp tests/agents/package.json $(AGENTS)/
	npm install --prefix $(AGENTS) --no-audit --no-fund
	@touch $@

# Every version is pinned (no resolver runs): pip would take longer to resolve these than to run them.
$(AGENTS)/python/.installed: tests/agents/requirements.txt
	$(PYTHON) -m venv $(AGENTS)/python
	$(AGENTS)/python/bin/python -m pip install --quiet --no-deps -r tests/agents/requirements.txt
	@touch $@

test-agents: $(VENV)/.develop $(AGENTS)/.installed $(AGENTS)/python/.installed ## Run coding agents and client frameworks (1.5 GB from npm and PyPI)
	$(BIN)/python -m pytest -m agents -q $(ARGS)

# Beside the environment's own, with what that release needs. By default the oldest that pyproject.toml allows.
VERSION ?= $(shell sed -nE 's/^ *"transformers>=([0-9.]+),.*/\1.0/p' pyproject.toml)
OTHER := build/transformers-$(VERSION)
$(OTHER)/.installed: $(VENV)/.develop
	mkdir -p $(OTHER)
	$(BIN)/python -m pip freeze --exclude-editable | grep -viE '^(transformers|huggingface_hub|tokenizers|safetensors)=| @ ' >$(OTHER)/constraints.txt
	$(BIN)/python -m pip install --quiet --target $(OTHER) -c $(OTHER)/constraints.txt transformers==$(VERSION) 'huggingface_hub>=1.31'
	@touch $@

test-transformers: $(OTHER)/.installed ## Compare models with another release of transformers: VERSION=5.17.0 (ARGS="-m slow")
	PYTHONPATH=$(CURDIR)/$(OTHER):$(CURDIR) $(BIN)/python -m pytest -m "not slow" -q \
		tests/engine/plugin tests/engine/architecture tests/engine/weights $(ARGS)

coverage: $(VENV)/.develop ## Run `make test` and list the lines that it does not cover (HTML in build/coverage)
	$(PYTEST) -m "not slow and not chart and not agents" \
		--cov --cov-report=term --cov-report=html:build/coverage $(ARGS)

lint: $(VENV)/.develop ## ruff, formatting, strict types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

types: $(VENV)/.develop ## Strict types alone (mypy)
	$(BIN)/mypy

# Without "unused variable": fields of structs, which msgspec reads and writes. Ruff finds the others.
dead: $(VENV)/.develop ## Find code that nothing uses (vulture; pyproject.toml has the exceptions)
	! $(BIN)/vulture | grep -v "unused variable"

# In a separate environment, so that the auditing tools are not audited themselves.
$(AUDIT)/.installed:
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet pip-audit
	@touch $@

audit: $(VENV)/.develop $(AUDIT)/.installed ## Compare imports with pyproject.toml, look up known vulnerabilities (needs pypi.org)
	$(BIN)/deptry .
	$(AUDIT)/bin/pip-audit --skip-editable --path $$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

$(LOCK)/.installed:
	$(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/python -m pip install --quiet uv
	@touch $@

# For Python 3.11 and 3.12 on x86-64 and arm64 alike. torch and what only its CUDA build needs are in
# a file of their own, a layer of the image. PyTorch's CPU builds are in none of PyPI's pages:
# torch-cpu.txt is kept by hand.
RESOLVE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
lock: $(LOCK)/.installed ## Lock the image's packages with their hashes (needs pypi.org; ARGS=--upgrade for newer ones)
	$(RESOLVE) $(ARGS) requirements/torch.txt --output-file $(LOCKED)/torch-cuda.txt
	$(RESOLVE) $(ARGS) --extra dashboard --extra grpc --constraint $(LOCKED)/torch-cuda.txt \
		$$(sed -nE 's/^((torch|triton|nvidia-|cuda-)[^=]*)==.*/--no-emit-package \1/p' $(LOCKED)/torch-cuda.txt) \
		pyproject.toml --output-file $(LOCKED)/packages.txt
	echo setuptools | $(RESOLVE) --constraint $(LOCKED)/packages.txt --output-file $(LOCKED)/build.txt -

format: $(VENV)/.develop ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Needs pre-commit (pipx install pre-commit); its hooks use this environment.
hooks: $(VENV)/.develop ## Run ruff, mypy and the prose check before each commit
	pre-commit install

bench: $(VENV)/.develop ## Run the CPU benchmarks; each prints a table and writes bench/results/
	$(BIN)/python -m bench.engine_cpu
	$(BIN)/python -m bench.sse
	$(BIN)/python -m bench.scheduler

# optimum-intel installs a torchvision that may not match this torch, and works without it.
$(PEERS)/.installed: requirements/torch.txt requirements/peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -r requirements/torch.txt
	$(PEERS)/bin/python -m pip install --quiet -c requirements/torch.txt -r requirements/peers.txt
	$(PEERS)/bin/python -m pip uninstall --quiet --yes torchvision
	@touch $@

soak: $(VENV)/.develop ## Mixed load over every API, every answer and count checked: MINUTES=5 FAULTS=1 ARGS="-- --max-num-seqs 32"
	$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),5) $(if $(FAULTS),--faults) $(ARGS)

peers: $(PEERS)/.installed ## Install llama.cpp and OpenVINO GenAI for python -m bench.cpu_peers (builds for minutes)

docs: $(VENV)/.develop ## Regenerate the pages that come from tables
	$(BIN)/python -m observability.generate
	$(BIN)/python -m service.settings_page
	$(BIN)/python -m service.routes_page
	$(BIN)/python -m service.drill_page
	$(BIN)/python -m helm.generate
	$(BIN)/python -m tests.engine.plugin.models_page
	$(BIN)/python -m tests.features

proto: $(VENV)/.develop ## Regenerate the Python code of the gRPC API from its proto file
	$(BIN)/python -m service.grpc.generate

clean: ## Remove the environment and build products
	rm -rf $(VENV) build dist *.egg-info
