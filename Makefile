# make demo: the main job on the bundled captures, no GPU needed.   make test: everything CI checks.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ARGS ?=

.PHONY: demo test lint format schemas docs bench clean

demo: $(VENV)/core.stamp
	@$(BIN)/cyinst demo

# Two installs, so that the demo does not wait for test tools.
$(VENV)/core.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cyinst needs Python 3.11 or later; set PYTHON=python3.x"; exit 1; }
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/test.stamp: pyproject.toml $(VENV)/core.stamp
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[test]'
	@touch $@

test: lint
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/test.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/test.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Rewrites docs/cli.md from the commands and the README's quoted output from the demo.
docs: $(VENV)/test.stamp
	$(BIN)/python scripts/write_docs.py

bench: $(VENV)/core.stamp
	$(BIN)/python benchmarks/report_wall_time.py

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
