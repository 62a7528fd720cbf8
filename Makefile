# Everything runs in virtual environments that `make venv` makes, against servers that
# `make servers` installs. What must be there: Python >= 3.12, Python 3.11 (for the older
# reference release), Go, Node.js, Java 17, Maven, and their package indexes.

PYTHON := .venv/bin/python
LEGACY := .venv-3.11/bin/python
WORKERS := 2
export AWS_EC2_METADATA_DISABLED := true

.PHONY: help demo venv servers test test-3.11 lint format bench soak clean

help: ## show this list
	@grep -hE '^[a-z0-9.-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: ## stream made-up weather stations into a repository, kill the driver twice, and compare
	@python3 -m scripts.demo $(ARGS)

venv: ## make .venv (newest Python >= 3.12) and .venv-3.11 (the older reference release)
	@python3 scripts/venv.py

servers: venv ## install what tests run against (object stores, Kafka, Delta) into the user's cache
	$(PYTHON) -m scripts.servers
	$(PYTHON) -m scripts.maven

test: venv servers ## all tests of 20 minutes at most
	$(PYTHON) -m pytest -n $(WORKERS) -m "not soak" --durations=25

test-3.11: venv ## the engine's tests on Python 3.11
	$(LEGACY) -m pytest -n $(WORKERS) -m "not soak and not compat" --ignore tests/object_stores --ignore tests/spark

lint: venv ## ruff, mypy --strict, import-linter
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports --no-cache

format: venv ## rewrite the sources in the project's format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

bench: venv ## measure against the reference library; rewrites bench/RESULTS.md
	$(PYTHON) bench/manifest_codec.py
	$(PYTHON) bench/read.py
	$(PYTHON) bench/read.py --s3
	$(PYTHON) bench/storage.py
	$(PYTHON) bench/commit_latency.py
	$(PYTHON) bench/commit_scale.py
	$(PYTHON) bench/commit_scale.py --stream
	$(PYTHON) bench/history.py
	$(PYTHON) bench/wide.py
	$(PYTHON) bench/write.py
	$(PYTHON) bench/write.py --s3
	$(PYTHON) bench/sink.py
	$(PYTHON) bench/sink.py --large
	$(PYTHON) bench/sink.py --step
	$(PYTHON) bench/sink.py --far
	$(PYTHON) bench/trigger.py

soak: venv servers ## long fuzzing and property runs
	HYPOTHESIS_PROFILE=soak $(PYTHON) -m pytest -n $(WORKERS) -m "soak or compat" -o faulthandler_timeout=7200

clean: ## remove what make made
	rm -rf .venv .venv-3.11 .venv-demo demo/out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
