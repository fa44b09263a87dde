# Every target sets up what it needs in .venv by itself, and is quick the second time.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
RUNS   := $(VENV)/.runs
READY  := $(VENV)/.ready
LOOKED := $(VENV)/.browser
MAKEFLAGS += --jobs=2  # a browser is fetched while packages are

.PHONY: demo test pytest test-slow lint wheel oldest format bench docs clean

demo: $(RUNS)
	$(BIN)/d2ace demo

test: lint pytest wheel  # side by side

pytest: $(READY) $(LOOKED)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(READY) $(LOOKED)
	$(BIN)/python -m pytest -m slow

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/codespell
	$(BIN)/python tests/check_words.py

# Built as for a release, then tried as by a user who has nothing but the core.
wheel: $(READY)
	rm -rf dist
	$(BIN)/python -m build --quiet --outdir dist
	$(BIN)/python tests/try_wheel.py dist

# With the oldest torch, numpy and scipy of pyproject.toml: minutes, and 2 GB of disk meanwhile.
oldest: $(READY)
	$(BIN)/python tests/try_oldest.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(READY)
	$(BIN)/python benchmarks/selection.py

# Reports are tested in Chromium, where it is or can be installed; elsewhere those tests are skipped.
$(LOOKED):
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || \
	  { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && echo "installing Chromium for the tests" && \
	    { apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core || \
	      { apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium fonts-dejavu-core; }; } \
	    >/dev/null 2>&1; } || echo "no Chromium: the tests of reports in a browser will be skipped"
	@mkdir -p $(VENV) && touch $(LOOKED)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

INSTALL = $(BIN)/pip install --quiet --no-compile --constraint constraints.txt --editable

# What the command line needs; then, on top and never at the same time, what developers need.
$(RUNS): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[bench]'
	touch $(RUNS)

$(READY): $(RUNS)
	$(INSTALL) '.[dev]'
	$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true  # on all cores, where pip uses one
	touch $(READY)
