# Everything here sets up .venv by itself. `make` alone lists the targets.
PYTHON ?= python3
BIN := .venv/bin
# pip compiles what it installs on one core; compileall does it on all of them, and leaves out what nobody imports: the tests
# of other packages, and models of transformers (files of other Pythons in a package do not compile)
define install
$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --editable "$(1)"
@$(BIN)/python -W ignore -m compileall -qq -j 0 -x '/(tests?|transformers/models)/' .venv/lib || true
@touch $@
endef

.PHONY: help demo test test-browser check bench docs figures explorer clean
help:
	@echo "make demo         a first report, in demo-report/report.html"
	@echo "make test         the whole test suite, warnings as errors"
	@echo "make test-browser the explorer in headless Chromium, at two widths"
	@echo "make check        format, lint, types, import contracts"
	@echo "make bench        against other accountants, samplers and trainers, side by side"
	@echo "make docs         the site, in site/index.html"
	@echo "make figures      draw the pictures of docs/ again"
	@echo "make explorer     the explorer as a static page, in site/explorer"
	@echo "make clean        remove .venv and everything built"

.venv/.created:
	$(PYTHON) -m venv .venv
	@touch $@

.venv/.for-demo: .venv/.created pyproject.toml constraints.txt
	$(call install,.[plot])

.venv/.for-dev: .venv/.created pyproject.toml constraints.txt
	$(call install,.[dev])

.venv/.for-browser: .venv/.for-dev
	$(call install,.[browser])

.venv/.for-bench: .venv/.for-demo
	$(call install,.[bench])

demo: .venv/.for-demo
	$(BIN)/ggdp demo --out demo-report

test: .venv/.for-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2  # two processes that wait for each other's threads take twice as long

test-browser: .venv/.for-browser
	@command -v chromium chromium-browser google-chrome >/dev/null || { echo "make test-browser needs Chromium: apt install chromium"; exit 1; }
	$(BIN)/python -m pytest tests/browser -m browser

check: .venv/.for-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/.for-bench
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/sampling.py
	$(BIN)/python benchmarks/training.py

docs: .venv/.for-dev
	$(BIN)/python -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs site

figures: .venv/.for-dev
	for script in docs/figures/*.py; do $(BIN)/python $$script || exit 1; done

# The page loads Pyodide, NumPy, SciPy and Matplotlib from the network when it is opened, which no test does.
explorer: .venv/.for-dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python docs/explorer_page.py site/explorer

clean:
	rm -rf .venv demo-report reproduction build dist site
