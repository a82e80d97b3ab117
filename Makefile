# Every target makes what it needs: a virtual environment in .venv with the pinned, hashed versions of .ci/requirements.txt.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PACKAGES := $(VENV)/.packages
# What the demo needs and no more, where there is no $(VENV) yet: a third of the packages.
DEMO := $(if $(wildcard $(READY)),$(VENV),.venv-demo)
DEMO_READY := $(DEMO)/.ready
# Words added to catalogue's command line, such as CATALOGUE="--differences".
CATALOGUE ?=
# Empty: the first of python3.11, 3.12, 3.13 and python3 that can make a virtual environment.
PYTHON ?=
# Words added to pytest's command line, such as TESTS="tests/trim -k fold".
TESTS ?=
# Words added to planted's command line, such as PLANTED="no-low-mark"; PLANTED=--help tells all.
PLANTED ?=
# Words added to the eval's command line, such as EVAL="--limit 8"; EVAL=--help tells all.
EVAL ?=
# Words added to live's command line, such as LIVE="--plan"; LIVE=--help tells all.
LIVE ?=
# Words added to evidence's command line, such as EVIDENCE="--quick"; EVIDENCE=--help tells all.
EVIDENCE ?=
# Words added to guard-eval's command line, such as GUARD_EVAL="--alone"; GUARD_EVAL=--help tells all.
GUARD_EVAL ?=
# Words added to the fuzzer's command line, such as FUZZ="--minutes 10 --seed 7"; FUZZ=--help tells all.
FUZZ ?=
# Words added to bench-scale's command line, such as SCALE="--quick"; SCALE=--help tells all.
SCALE ?=
# Words added to observe's command line, such as OBSERVE="--minutes 1"; OBSERVE=--help tells all.
OBSERVE ?=

# Exact versions with hashes, for every platform.
COMPILE := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_NO_INPUT := 1
# Processes that tests start would compile all modules again, each of them: half of a server's start.
unexport PYTHONDONTWRITEBYTECODE
# Tools of another environment must not answer for ours.
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@echo "Prompt Sidecar. Each of these does its own set-up, in $(VENV):"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  make test TESTS=\"tests/trim -k fold\" runs some of the tests; make PYTHON=... chooses the interpreter."

.PHONY: demo
demo: $(DEMO_READY) ## See it work: a scripted agent sends a long run through a real server
	@PYTHONPATH=sidecar $(DEMO)/bin/python -m tests.lab.demo

.PHONY: quick
quick: $(READY) ## Check what has changed, in half a minute: formatting, lint, imports, types, the tests beside it
	@$(BIN)/python .ci/quick.py

.PHONY: test
test: $(READY) ## Run the tests that fit into five minutes
	@$(BIN)/python -m pytest -n auto --dist worksteal --lane=test $(TESTS)

.PHONY: test-all
test-all: $(READY) ## Run every test, with as many of its cases as take some seconds: images, real agents, five languages
	@$(BIN)/python -m pytest -n auto --dist worksteal --lane=all $(TESTS)

.PHONY: test-cases
test-cases: $(READY) ## Run every case of every test: an hour on two slow cores
	@$(BIN)/python -m pytest -n auto --dist worksteal $(TESTS)

.PHONY: test-costs
test-costs: $(READY) ## Run every case, and write what tests cost in processor time, by which test and test-all choose
	@$(BIN)/python -m pytest -n auto --dist worksteal --write-costs $(TESTS)

.PHONY: planted
planted: $(READY) ## Plant faults in a copy of the code, and show which test of make test catches each
	@$(BIN)/python -m tests.lab.planted $(PLANTED)

.PHONY: chart
chart: $(READY) ## Write deploy/kubernetes/standalone from the Helm chart, by Helm itself
	@$(BIN)/python -m tests.deploy.chart

.PHONY: integrations
integrations: $(READY) ## Install the frameworks that tests/integrations meets, each in an environment of its own
	@$(BIN)/python -m tests.integrations.environments

# Words added to its command line, such as AGENTS="mastra crewai"; AGENTS=--help tells all.
AGENTS ?=

.PHONY: agents
agents: $(READY) ## Run each agent and framework of docs/integrations.md sixty calls behind the HTTP door
	@$(BIN)/python -m tests.agents $(AGENTS)

.PHONY: agents-newest
agents-newest: $(READY) ## The same with the registries' newest versions: what is not as the page says any more
	@$(BIN)/python -m tests.agents --newest $(AGENTS)

.PHONY: fuzz
fuzz: $(READY) ## Send odd input of every format to every RPC for some minutes: none may give INTERNAL
	@$(BIN)/python -m tests.lab.fuzz $(FUZZ)

.PHONY: bench
bench: $(READY) ## Measure the time of a call, by phase, beside the floor
	@$(BIN)/python -m tests.lab.bench

.PHONY: conformance
conformance: $(READY) ## Trim recorded requests under every preset, and judge what comes back by each provider's rules
	@$(BIN)/python -m tests.lab.conformance

.PHONY: guard-eval
guard-eval: $(READY) ## Measure what the guard's rules find, miss, and find for nothing; the first time it installs a peer
	@$(BIN)/python -m tests.lab.guard_eval $(GUARD_EVAL)

.PHONY: bench-scale
bench-scale: $(READY) ## Measure sidecars behind Envoy with a store, under 1,000 agents and a SIGKILL every ten seconds
	@$(BIN)/python -m tests.lab.scale $(SCALE)

.PHONY: bench-peers
bench-peers: $(READY) ## Measure what trimming costs beside other libraries; the first time it installs them
	@$(BIN)/python -m tests.lab.peers

.PHONY: evidence
evidence: $(READY) ## Measure what trimming recorded runs leaves of the text that the next action used
	@$(BIN)/python -m tests.lab.evidence $(EVIDENCE)

.PHONY: counted
counted: $(READY) ## Compare estimates of what recorded runs cost with what their providers counted
	@$(BIN)/python -m tests.lab.counted

.PHONY: condensing
condensing: $(READY) ## Measure what condensing saves and hides on recorded runs; CONDENSING=--help
	@$(BIN)/python -m tests.lab.condensing $(CONDENSING)

.PHONY: report
report: $(READY) ## Make a report over the recorded runs, and its picture for docs/; needs Chromium
	@$(BIN)/python -m tests.lab.report

.PHONY: eval
eval: $(READY) ## Ask a model for what it lost sight of: EVAL_BASE_URL, EVAL_MODEL, EVAL_API_KEY
	@$(BIN)/python -m tests.lab.eval $(EVAL)

.PHONY: live
live: $(READY) ## Run agent tasks with a model of yours, without the sidecar and with it: EVAL_BASE_URL, EVAL_MODEL, EVAL_API_KEY
	@$(BIN)/python -m tests.lab.live $(LIVE)

.PHONY: upgrade
upgrade: $(READY) ## Run this version and an earlier one side by side on one store: make upgrade FROM=COMMIT
	@$(BIN)/python -m tests.lab.upgrade $(FROM)

.PHONY: run-pages
run-pages: $(READY) ## Photograph the pages of runs under a load of agents, for docs/images; needs Chromium
	@$(BIN)/python -m tests.lab.run_pages

.PHONY: observe
observe: $(READY) ## Paint every dashboard from a live Prometheus under a load of agents; needs Node.js and Chromium
	@$(BIN)/python -m tests.lab.observe $(OBSERVE)

.PHONY: check
check: check-style check-words check-types check-imports check-protos check-client check-dashboards check-portable ## Run every check: style, words, types, layers, protos, client, dashboards, portability

.PHONY: check-style
check-style: $(READY)
	@$(BIN)/ruff format --check --quiet --output-format concise . || { echo "Run make fmt." >&2; exit 1; }
	@$(BIN)/ruff check --quiet --output-format concise .

.PHONY: check-words
check-words: $(READY)
	@$(BIN)/python -m pytest -q --no-header tests/repo/test_plain_words.py

.PHONY: check-types
check-types: $(READY)
	@$(BIN)/python -m mypy

.PHONY: check-imports
check-imports: $(READY)
	@$(BIN)/lint-imports --no-logo

.PHONY: check-protos
check-protos: $(READY)
	@$(BIN)/buf lint protos
	@$(BIN)/buf format protos -d --exit-code
	@.ci/check-breaking $(BIN)/buf
	@.ci/check-stubs $(BIN)/python

.PHONY: check-client
check-client: $(READY)
	@$(BIN)/python .ci/blocking-client.py --check

.PHONY: check-dashboards
check-dashboards: $(READY)
	@$(BIN)/python -m dashboards.generate --check

.PHONY: check-portable
check-portable: $(READY)
	@$(BIN)/python .ci/check-portable.py

.PHONY: fmt
fmt: $(READY) ## Format the code and the protos, and mend what the linter can
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .
	@$(BIN)/buf format protos -w

.PHONY: protos
protos: $(READY) ## Write the stubs in sidecar/prompt_sidecar/v1 and .../doors/envoy/v1 anew from protos/
	@rm -f sidecar/prompt_sidecar/doors/envoy/v1/*_pb2.py sidecar/prompt_sidecar/doors/envoy/v1/*_pb2.pyi
	@rm -f sidecar/prompt_sidecar/v1/*_pb2.py sidecar/prompt_sidecar/v1/*_pb2.pyi sidecar/prompt_sidecar/v1/*_pb2_grpc.py sidecar/prompt_sidecar/v1/*_pb2_grpc.pyi
	@.ci/stubs . $(BIN)/python

.PHONY: client
client: $(READY) ## Write the blocking client in sidecar/prompt_sidecar/client/blocking anew from asyncio's
	@$(BIN)/python .ci/blocking-client.py

.PHONY: dashboards
dashboards: $(READY) ## Write the dashboards and rules anew from dashboards/generate
	@$(BIN)/python -m dashboards.generate

# -W -n: a link that leads nowhere and a page that no other leads to fail it. Nothing is read from the network.
.PHONY: docs
docs: $(READY) ## Build the site of docs/ into dist/docs, with the reference made from the sources
	@$(BIN)/sphinx-build --fail-on-warning --keep-going --nitpicky --quiet --builder html --doctree-dir .cache/docs docs dist/docs
	@echo "The site begins at dist/docs/index.html."

# The image takes the versions that the checks and tests have met.
.PHONY: pins
pins: $(READY) ## Pin the newest versions that pyproject.toml allows, for the checks and for the image
	@$(COMPILE) pyproject.toml --extra server --extra admin --extra fast --extra http --extra report --extra store --group dev --upgrade --output-file .ci/requirements.txt
	@$(COMPILE) pyproject.toml --extra server --group demo --constraint .ci/requirements.txt --output-file .ci/demo.txt
	@$(COMPILE) pyproject.toml --extra server --extra admin --extra fast --extra http --extra store --constraint .ci/requirements.txt \
		--output-file deploy/requirements/server.txt
	@$(COMPILE) --group wheel --constraint .ci/requirements.txt --output-file deploy/requirements/build.txt
	@$(COMPILE) tests/lab/catalogue/requirements.in --upgrade --output-file tests/lab/catalogue/requirements.txt
	@$(COMPILE) tests/lab/catalogue/litellm.in --upgrade --no-deps --output-file tests/lab/catalogue/litellm.txt
	@for name in tests/integrations/requirements/*.in; do $(COMPILE) "$$name" --upgrade --output-file "$${name%.in}.txt"; done
	@$(BIN)/uv pip compile --python-version 3.12 --generate-hashes --no-header --no-annotate --quiet \
		tests/deploy/requirements/helm.in --upgrade --output-file tests/deploy/requirements/helm.txt
	@$(COMPILE) tests/deploy/requirements/release.in --upgrade --output-file tests/deploy/requirements/release.txt
	@git --no-pager diff --stat -- .ci/requirements.txt .ci/demo.txt deploy/requirements tests/integrations/requirements

# litellm without its dependencies: only the table in its wheel is read.
.PHONY: catalogue
catalogue: $(READY) ## Build the catalogue of models again, from maintained tables and our own rows
	@$(BIN)/python -m venv .cache/catalogue
	@.cache/catalogue/bin/python -m pip install --quiet --require-hashes --requirement tests/lab/catalogue/requirements.txt
	@.cache/catalogue/bin/python -m pip install --quiet --require-hashes --no-deps --requirement tests/lab/catalogue/litellm.txt
	@PYTHONPATH=sidecar .cache/catalogue/bin/python -m tests.lab.catalogue $(CATALOGUE)

.PHONY: release-dry-run
release-dry-run: $(READY) ## Build a release into dist/, install it into clean environments and try the README; publish nothing
	@$(BIN)/python -m tests.deploy.release

.PHONY: clean
clean: ## Remove what make made
	rm -rf $(VENV) .venv-demo .cache dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --require-hashes takes nothing that is not pinned.
$(PACKAGES): .ci/requirements.txt .ci/python
	@if [ ! -e $(READY) ] || [ -n "$$(find $^ -newer $(READY))" ]; then \
		python=$$(.ci/python $(PYTHON)) && echo "Setting up $(VENV) with $$python ..." && "$$python" -m venv --clear $(VENV) && \
		$(BIN)/python -m pip install --quiet --quiet --progress-bar off --require-hashes --requirement .ci/requirements.txt; \
	fi
	@touch $@

# The project itself is linked in with the pinned build tool, as an isolated build would fetch one that is not. After a
# change of pyproject.toml alone the packages stay.
$(READY): $(PACKAGES) pyproject.toml
	@$(BIN)/python -m pip install --quiet --quiet --progress-bar off --no-deps --no-build-isolation --editable .
	@touch $@

# Modules are compiled as they are imported: most never are.
.venv-demo/.ready: .ci/demo.txt .ci/python
	@python=$$(.ci/python $(PYTHON)) && echo "Setting up .venv-demo with $$python ..." && "$$python" -m venv --clear .venv-demo
	@.venv-demo/bin/python -m pip install --quiet --quiet --progress-bar off --no-compile --require-hashes --requirement .ci/demo.txt
	@touch $@
