# Everything here sets up .venv by itself. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help demo test check bench docs clean
help:
	@echo "make demo | test | check | bench | docs | clean"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

demo: $(STAMP)
	$(BIN)/ggdp demo --out demo-report

test: $(STAMP)
	$(BIN)/python -m pytest -n 2

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.venv/.benched: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[bench]"
	@touch $@

bench: .venv/.benched
	$(BIN)/python benchmarks/accounting.py

clean:
	rm -rf .venv demo-report build dist
