# Every target sets up all that it needs, and is quick when run again.
.DEFAULT_GOAL := help
SHELL := /bin/sh

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
ENOUGH := $(VENV)/.enough
PIP    := $(BIN)/pip install -q --disable-pip-version-check -c constraints.txt
ARGS   ?=

.PHONY: help run test test-deep lint schemas dashboards example overview screenshots chaos bench bench-against bench-peers build constraints clean

help: ## a line for each target
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(ENOUGH) ## the whole sidecar on this machine, with sample reminders (ARGS="--for 20" to end by itself)
	@$(BIN)/scheduler dev $(ARGS)

test: $(READY) ## all tests, against a real Postgres and a real RabbitMQ
	@$(BIN)/python -m pytest -n 3 --dist loadscope $(ARGS)

test-deep: $(READY) ## the property tests with thousands of examples
	@SCHEDULER_TEST_EXAMPLES=5000 $(BIN)/python -m pytest -m "deep" $(ARGS)

lint: $(READY) ## ruff, mypy strict, the container files and Kubernetes manifests, and Prometheus's rules
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@if [ -f docker-compose.yml ]; then $(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml; fi
	@if [ -f Dockerfile ]; then $(BIN)/hadolint Dockerfile; fi
	@$(BIN)/python -m scheduler.dev.kubernetes
	@$(BIN)/python -m scheduler.dev.prometheus

schemas: $(READY) ## write schemas/*.json and schemas/asyncapi.yaml from the models
	@$(BIN)/python -m scheduler.dev.schemas
	@$(BIN)/python -m scheduler.dev.asyncapi

dashboards: $(READY) ## write grafana/dashboards/*.json and the alert rules for Kubernetes
	@$(BIN)/python -m scheduler.dev.dashboards
	@$(BIN)/python -m scheduler.dev.kubernetes rules

example: $(READY) ## the examples for hosts, against a sidecar of their own (ARGS="plain_pika.py" for one)
	@$(BIN)/python examples/run.py $(ARGS)

overview: $(READY) ## draw docs/overview.png, the overview dashboard, from a real run of two minutes
	@$(BIN)/python -m bench.overview

screenshots: $(READY) ## draw docs/console/*.png, the console in both themes, from a real run of some minutes
	@$(BIN)/python -m scheduler.dev.screenshots

chaos: $(READY) ## break every part while the sidecar works, and account for every event (FAULT=kill for one)
	@$(BIN)/python -m chaos $(FAULT) $(ARGS)

bench: $(READY) ## measure, side by side with yardsticks in the same run
	@$(BIN)/python -m bench $(ARGS)

bench-against: $(READY) ## this tree beside another commit, in turns (BASE=commit)
	@$(BIN)/python bench/against.py $(BASE) $(ARGS)

bench-peers: $(READY) ## measure other libraries beside ours; installs them into .bench-peers/ (ARGS="pgqueuer" for one)
	@$(BIN)/python -m bench.peers $(ARGS)

build: $(READY) ## the wheel and the source archive, in dist/
	@$(BIN)/python -m build --no-isolation

constraints: ## write constraints.txt anew from the newest versions that pyproject.toml allows
	@rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) && $(BIN)/pip install -q -e '.[dev]' hatchling
	@{ head -n 1 constraints.txt; $(BIN)/pip freeze --exclude-editable; } > constraints.new && mv constraints.new constraints.txt

clean: ## remove what the targets made
	@rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis

# The environment grows in two steps, so that a newcomer's first `make run` need not wait for the test tools.
$(READY): $(ENOUGH)
	@echo "== installing the tools for tests and measurements into $(VENV) (once; about a minute)"
	@$(PIP) -e '.[dev]'
	@touch $@

$(ENOUGH): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "== installing python3-venv with apt-get"; \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends python3 python3-venv; \
	  else echo "Python with venv is missing. Debian, Ubuntu: sudo apt-get install python3-venv"; exit 1; fi; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Python 3.11 or newer is needed; this is $$($(PYTHON) --version). Try make PYTHON=python3.12"; exit 1; }
	@echo "== preparing $(VENV) (once; some seconds)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) hatchling editables -e '.[api,containers,worker]'
	@touch $@
