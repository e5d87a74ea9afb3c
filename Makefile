# Every target sets up all that it needs, and is quick when run again.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ENOUGH := $(VENV)/.enough
DOCS   := .venv-docs
PIP    := $(BIN)/pip install -q --disable-pip-version-check
LOCK   := uv pip compile -q --generate-hashes --universal --python-version 3.11 --no-annotate \
          --custom-compile-command 'make constraints'
ARGS   ?=
# No usable Python, no right to install one, but Docker with Compose.
DOCKER_ONLY = ! $(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
              && ! { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; } \
              && docker compose version >/dev/null 2>&1

.PHONY: help run check test test-deep languages upgrade lint schemas dashboards example pictures screenshots chaos torture bench bench-against bench-peers docs build constraints audit sbom clean

help: ## a line for each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## the whole sidecar on this machine, with sample reminders (ARGS="--for 20" to end by itself)
	@if $(DOCKER_ONLY); then exec sh deploy/compose/try.sh; fi; \
	  $(MAKE) -s $(ENOUGH) && exec $(BIN)/scheduler dev $(ARGS)

check: $(READY) ## before every commit, in under 90 s: ruff, mypy strict and the unit tests without the long recurrence ones
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q -n 3 tests/unit --ignore tests/unit/domain/recurrence $(ARGS)

test: $(READY) ## all tests, against a real Postgres and a real RabbitMQ (SERVERS=trixie or sid for newer ones; RECORD=yes for docs/compatibility.md)
	@SERVERS=$(SERVERS) $(BIN)/python -m tools.prerequisites $(ARGS)
	@SERVERS=$(SERVERS) RECORD=$(RECORD) $(BIN)/python -m pytest -n 3 --dist loadscope $(ARGS)

languages: $(READY) ## build and run the small host in Java, Go, PHP, Ruby and TypeScript (as root it installs them)
	@$(BIN)/python -m pytest -m "languages or not languages" \
	  tests/acceptance/test_languages.py tests/acceptance/delayed/test_delayed_docs.py $(ARGS)

upgrade: $(READY) ## move a database by logical replication between two versions of Postgres (FROM=trixie TO=sid)
	@FROM=$(FROM) TO=$(TO) $(BIN)/python -m pytest tests/acceptance/test_logical_replication.py $(ARGS)

test-deep: $(READY) ## the property tests with thousands of examples
	@SCHEDULER_TEST_EXAMPLES=5000 $(BIN)/python -m pytest -m "deep" $(ARGS)

lint: $(READY) ## ruff, mypy strict, the container files, Kubernetes manifests, Prometheus's rules, and links in the docs
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@if [ -f docker-compose.yml ]; then $(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml; fi
	@if [ -f Dockerfile ]; then $(BIN)/hadolint Dockerfile; fi
	@$(BIN)/python -m tools.kubernetes
	@$(BIN)/python -m tools.prometheus
	@$(BIN)/python -m pytest -q -p no:randomly tests/unit/test_docs.py

schemas: $(READY) ## write schemas/*.json, messages.d.ts and asyncapi.yaml from the models
	@$(BIN)/python -m tools.schemas
	@$(BIN)/python -m tools.typescript
	@$(BIN)/python -m tools.asyncapi

dashboards: $(READY) ## write grafana/dashboards/*.json and the alert rules for Kubernetes
	@$(BIN)/python -m tools.dashboards
	@$(BIN)/python -m tools.kubernetes rules

example: $(READY) ## the examples for hosts, against a sidecar of their own (ARGS="plain_pika.py" for one)
	@$(BIN)/python examples/run.py $(ARGS)

pictures: $(READY) ## draw docs/recurrence/*.svg from what the planner gives
	@$(BIN)/python -m tools.pictures

screenshots: $(READY) ## draw docs/console/*.png, the console in both themes, from a real run of some minutes
	@$(BIN)/python -m tools.screenshots

chaos: $(READY) ## break every part while the sidecar works, and account for every event (FAULT=kill for one)
	@$(BIN)/python -m chaos $(FAULT) $(ARGS)

torture: $(READY) ## random work and faults, judged by a model (SEED=1 to repeat; ARGS="--for 10m", "--theme holds", "--commit REV")
	@$(BIN)/python -m torture $(if $(SEED),--seed $(SEED)) $(ARGS)

bench: $(READY) ## measure, side by side with yardsticks in the same run
	@$(BIN)/python -m bench $(ARGS)

bench-against: $(READY) ## this tree beside another commit, in turns (BASE=commit)
	@$(BIN)/python bench/against.py $(BASE) $(ARGS)

bench-peers: $(READY) ## measure other libraries beside ours; installs them into .bench-peers/ (ARGS="pgqueuer" for one)
	@$(BIN)/python -m bench.peers $(ARGS)

docs: $(DOCS)/.ready ## the documentation as a site, in build/site
	@mkdir -p build/docs-source && NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build -q && echo "wrote build/site/README.html"

build: $(READY) ## the wheel and the source archive, in dist/
	@$(BIN)/python -m build --no-isolation

constraints: $(READY) ## lock the newest versions that pyproject.toml allows, with their hashes (ARGS="--upgrade")
	@$(PIP) uv
	@$(BIN)/$(LOCK) $(ARGS) --all-extras pyproject.toml requirements/build.in -o constraints.txt
	@$(BIN)/$(LOCK) -c constraints.txt --extra all pyproject.toml -o requirements/run.txt
	@$(BIN)/$(LOCK) -c constraints.txt requirements/build.in -o requirements/build.txt
	@$(BIN)/$(LOCK) requirements/docs.in -o requirements/docs.txt
	@$(BIN)/$(LOCK) requirements/celery.in -o requirements/celery.txt

audit: $(READY) ## look the locked versions up in the list of known vulnerabilities (needs the internet)
	@$(PIP) pip-audit
	@$(BIN)/pip-audit --strict --require-hashes --disable-pip -r constraints.txt

sbom: $(READY) ## write dist/sbom.cdx.json: what the image contains, as CycloneDX
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible -o dist/sbom.cdx.json requirements/run.txt
	@echo "wrote dist/sbom.cdx.json"

clean: ## remove what the targets made
	@rm -rf $(VENV) $(DOCS) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The environment grows in two steps, so that a newcomer's first `make run` need not wait for the test tools.
$(READY): $(ENOUGH)
	@echo "== installing the tools for tests and measurements into $(VENV) (once; about a minute)"
	@$(PIP) --require-hashes -r constraints.txt
	@touch $@

$(ENOUGH): pyproject.toml constraints.txt requirements/run.txt requirements/build.txt
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== installing python3-venv with apt-get"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv; \
	  else echo "Python with venv is missing. Debian, Ubuntu: sudo apt-get install python3-venv"; exit 1; fi; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	@echo "== preparing $(VENV) (once; some seconds)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --require-hashes -r requirements/run.txt -r requirements/build.txt
	@$(BIN)/pip uninstall -q -y scheduler 2>/dev/null  # the distribution's name before 0.3
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(DOCS)/.ready: requirements/docs.txt
	@echo "== preparing $(DOCS) (once; some seconds)"
	@$(PYTHON) -m venv $(DOCS)
	@$(DOCS)/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@touch $@
