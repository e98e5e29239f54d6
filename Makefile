# One verb a line: `make` or `make help` lists them. Everything is installed into .venv, nowhere else.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

# Which Python .venv is made of; empty: the first on PATH that is new enough (see scripts/venv).
PYTHON ?=
# Test processes. Many tests wait for others that they start, so three keep two cores busy; each has its own Postgres.
WORKERS ?= 3

PY := .venv/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --quiet
# Tests start hundreds of processes, which begin in two thirds of the time with our modules compiled.
COMPILED := $(PY) -m compileall -q src tests/crash &&
EXTRAS := $(addprefix --extra ,postgres ray s3 grpc client mcp server)
UV_COMPILE := .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
    --no-emit-index-url --custom-compile-command "make requirements"

.PHONY: help
help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: .venv/.dev  ## Create .venv with everything that development needs

.PHONY: demo
demo: .venv/.runtime  ## Find out which of 40 versions of a support pipeline is better, with a report (no root, no services)
	@rm -rf build/demo && mkdir -p build/demo
	@cd build/demo && ../../.venv/bin/wtb batch run ../../examples/support_qa/batch.py --runner processes
	@cd build/demo && ../../.venv/bin/wtb report support_qa --out report.html
	@echo "To look at the batch and its runs on the page: make serve"

.PHONY: serve
serve: .venv/.dev web  ## Serve the demo on this machine and open the browser; makes the demo first if it is not there
	@test -e build/demo/.wtb/wtb.db || $(MAKE) --no-print-directory demo
	@cd build/demo && ../../.venv/bin/wtb serve --open ../../examples/support_qa/batch.py

# What the page is made of: it is built again only when one of these changed.
PAGE := $(wildcard web/*.json web/*.ts web/index.html web/public/assets/*) $(shell find web/src -name '*.ts*' -o -name '*.css')

.PHONY: web
web: src/wtb/api/page_files/index.html  ## Build the page that `wtb serve` shows; takes Node.js from PyPI if there is none

src/wtb/api/page_files/index.html: $(filter-out %/schema.ts,$(PAGE)) | .venv/bin/pip
	@scripts/web install
	@scripts/web run build -- --logLevel warn
	@touch $@

.PHONY: dist
dist: .venv/.dev web  ## Build the wheel and the source distribution into dist/, with the page
	$(PY) -m hatchling build -d dist

# The types of the API, from the server as it is here: a page that does not fit the API does not pass.
.PHONY: web-types
web-types: .venv/.dev
	@scripts/web install
	@$(PY) -m scripts.openapi build/openapi.json
	@scripts/web exec -- openapi-typescript ../build/openapi.json --output src/api/schema.ts >/dev/null

.PHONY: web-check
web-check: web-types  ## Part of check: format, types and unit tests of the page
	@scripts/web run lint
	@scripts/web run types
	@scripts/web run test

.PHONY: test
test: check  ## Everything that CI runs: the same as check

# The quick ones first. Types take a core for most of a minute, and the tests on Ray mostly wait: one beside the other.
.PHONY: check
check: .venv/.dev  ## Lint, types, layers and all tests; installs Postgres, PgBouncer, libfiu, xfsprogs, Chromium and curl when absent
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory layers
	@scripts/services
	@scripts/langgraph_tests
	@$(MAKE) --no-print-directory web web-check
	@$(MAKE) --no-print-directory --jobs 2 types test-ray
	$(COMPILED) $(PY) -m pytest -n $(WORKERS) --dist worksteal

# In a process of its own: Ray takes a gigabyte, and long to start.
.PHONY: test-ray
test-ray: .venv/.dev  ## Part of check: the contract of runners on Ray, lost workers and drivers, at most three minutes
	$(COMPILED) WTB_TEST_RUNNERS=ray $(PY) -m pytest -k ray tests/ray tests/integration/test_runner_contract.py \
	    tests/integration/test_environment_contract.py

.PHONY: quick
quick: .venv/.dev  ## For every save, two minutes: lint, types, layers, unit and contract tests on memory and SQLite
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory types
	@$(MAKE) --no-print-directory layers
	$(COMPILED) $(PY) -m pytest -n $(WORKERS) --dist worksteal -k "not postgres and not pgbouncer" tests/unit tests/contract \
	    $(addprefix tests/cli/test_cli_,db.py diff.py look.py output.py replay.py)

.PHONY: lint
lint: .venv/.dev  ## Part of check: ruff, rules and format
	.venv/bin/ruff check
	.venv/bin/ruff format --check

.PHONY: types
types: .venv/.dev  ## Part of check: mypy --strict
	$(PY) -m mypy

.PHONY: layers
layers: .venv/.dev  ## Part of check: who may import whom (import-linter)
	.venv/bin/lint-imports --no-logo

.PHONY: format
format: .venv/.dev  ## Format the code and fix what ruff can fix
	.venv/bin/ruff check --fix-only
	.venv/bin/ruff format

.PHONY: bench
bench: .venv/.bench .venv/inspect/.ready  ## Run the benchmarks: store, files, objects, engine, awaited runs, long values, time travel, reading, the live feed, the page, batches, scale, capacity, LangGraph; tables, and JSON
	@scripts/services
	$(PY) -m benchmarks.store
	$(PY) -m benchmarks.files
	$(PY) -m benchmarks.objects
	$(PY) -m benchmarks.engine
	$(PY) -m benchmarks.awaiting
	$(PY) -m benchmarks.long_values
	$(PY) -m benchmarks.time_travel
	$(PY) -m benchmarks.reading
	$(PY) -m benchmarks.feed
	$(PY) -m benchmarks.page
	$(PY) -m benchmarks.page_batch
	$(PY) -m benchmarks.batch
	$(PY) -m benchmarks.scale
	$(PY) -m benchmarks.capacity
	$(PY) -m benchmarks.langgraph

SOAK := WTB_SOAK=1 $(PY) -m pytest -n $(WORKERS) --dist worksteal --timeout 7200

.PHONY: soak
soak: soak-kills soak-properties soak-suite soak-ray soak-langgraph-js  ## The long tests, all of them: hours; each of these five runs alone too

.PHONY: soak-kills
soak-kills: .venv/.dev  ## Part of soak: processes killed anywhere, wrong clocks, containers and mounts as they really are
	@scripts/services soak
	$(COMPILED) $(SOAK) tests/crash

.PHONY: soak-properties
soak-properties: .venv/.dev  ## Part of soak: many more random examples, and many more simulated batches
	@scripts/services
	$(COMPILED) $(SOAK) tests/property tests/statistics

.PHONY: soak-suite
soak-suite: .venv/.dev  ## Part of soak: all of LangGraph's own tests that take a checkpointer, on every storage
	@scripts/services
	@scripts/langgraph_tests
	$(COMPILED) $(SOAK) tests/langgraph_suite

.PHONY: soak-ray
soak-ray: .venv/.dev  ## Part of soak: batches on a Ray cluster whose workers, nodes and database fail
	@scripts/services
	$(COMPILED) WTB_SOAK=1 WTB_TEST_RUNNERS=ray $(PY) -m pytest --timeout 7200 tests/ray

.PHONY: soak-langgraph-js
soak-langgraph-js: .venv/.dev  ## Part of soak: LangGraph's JavaScript SDK against a server; needs node and npm
	@scripts/services
	@scripts/langgraph_js
	$(COMPILED) $(PY) -m pytest tests/langgraph_js/js_sdk_journey.py

.PHONY: docs
docs: .venv/.dev  ## Build the documentation into build/site; a broken link is an error
	$(PY) -m mkdocs build --strict

.PHONY: pictures
pictures: .venv/.dev web  ## Take the pictures of the page for README and documentation, in a real browser
	@test -e build/demo/.wtb/wtb.db || $(MAKE) --no-print-directory demo
	$(PY) -m scripts.pictures

.PHONY: reference
reference: .venv/.dev  ## Make docs/commands.md, api.md, events.md, the example notebook and the tables of new SQLite files
	$(PY) -m scripts.reference

.PHONY: clean
clean:  ## Remove .venv, build and caches; never a .wtb folder
	@grep -qs '^name = "workflow-test-bench"$$' pyproject.toml || { echo "make clean: run it in the repository." >&2; exit 1; }
	rm -rf .venv build dist web/node_modules src/wtb/api/page_files .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# A file further down is held to the versions of the one above, so that one .venv can go from one to the next.
.PHONY: requirements
requirements: .venv/.dev  ## Compile requirements/*.txt anew, with the newest versions that fit
	$(UV_COMPILE) --upgrade pyproject.toml requirements/build.in -o requirements/runtime.txt
	$(UV_COMPILE) --upgrade pyproject.toml requirements/build.in requirements/dev.in $(EXTRAS) \
	    -c requirements/runtime.txt -o requirements/dev.txt
	$(UV_COMPILE) --upgrade pyproject.toml requirements/build.in requirements/dev.in requirements/bench.in $(EXTRAS) \
	    -c requirements/dev.txt -o requirements/bench.txt
	$(UV_COMPILE) --upgrade requirements/node.in -o requirements/node.txt
	$(UV_COMPILE) --upgrade requirements/inspect.in -o requirements/inspect.txt

# The stamps: made again only when the pins or the project's metadata changed. The project goes in as it lies here
# (editable), built with the pinned hatchling: an isolated build would fetch one that no hash covers.
.venv/.runtime .venv/.dev .venv/.bench: .venv/.%: requirements/%.txt pyproject.toml | .venv/bin/pip
	@echo "Installing requirements/$*.txt into .venv ..."
	@$(PIP) install --require-hashes -r requirements/$*.txt
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# A peer of the benchmarks that does not fit into .venv, since it needs an older fsspec.
.venv/inspect/.ready: requirements/inspect.txt | .venv/bin/pip
	@PYTHON="$(PYTHON)" scripts/venv .venv/inspect
	@.venv/inspect/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r requirements/inspect.txt
	@touch $@

.venv/bin/pip:
	@PYTHON="$(PYTHON)" scripts/venv .venv
