# Everything happens in .venv, which the first target that needs it builds.
PYTHON ?= python3
BIN := .venv/bin

PIP := pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

# Tests of the closed forms that run without the extras, too, in half a minute.
QUICK := $(addprefix tests/moments/test_,errors.py gp.py linear.py)

.PHONY: help install demo test test-slow check checks lint types light light-tests notebooks bench mutants results site slowest step lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: .venv/installed ## the package with all that tests and pages need, in .venv

.venv/made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "MoCA needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into .venv (a minute or two) …"
	@$(PYTHON) -m venv .venv
	@touch $@

.venv/package: pyproject.toml constraints.txt | .venv/made
	@$(BIN)/$(PIP) -e '.[studies]'
	@touch $@

.venv/installed: pyproject.toml constraints.txt | .venv/made
	@$(BIN)/$(PIP) -e '.[dev]'
	@touch .venv/package $@

demo: .venv/package ## the main job, on a CPU
	$(BIN)/moca demo

test: install ## all tests but the slow ones
	$(BIN)/python -m pytest $(WORKERS) -m "not slow" --durations 20 --junit-xml build/tests.xml

slowest: ## regenerate tests/slowest.md from the last make test
	$(BIN)/python tools/slowest.py

test-slow: install ## every test
	$(BIN)/python -m pytest $(WORKERS)

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

light: ## build wheel and source distribution, install each without extras in build/light, and try it
	rm -rf build/light build/builder dist
	$(PYTHON) -m venv build/builder
	build/builder/bin/$(PIP) build
	build/builder/bin/python -m build --quiet
	$(PYTHON) -m venv build/light
	build/light/bin/$(PIP) dist/*.tar.gz
	cd build && light/bin/python ../tools/light.py
	build/light/bin/$(PIP) --force-reinstall --no-deps dist/*.whl
	cd build && light/bin/python ../tools/light.py
	build/light/bin/$(PIP) ./zoo
	cd build && light/bin/python -c "import moca; moca.pretrained('CartpoleSwingup')"
	build/light/bin/$(PIP) beartype hypothesis pytest
	build/light/bin/python -m pytest -q -m "not slow" $(QUICK)

light-tests: light ## all of the closed forms' tests in that environment, without the extras
	build/light/bin/$(PIP) emukit mpmath
	build/light/bin/python -m pytest -m "not slow" tests/moments

notebooks: light ## run the notebooks with few steps, in that environment with the extras they need
	build/light/bin/$(PIP) "$$(ls dist/*.whl)[gymnasium]" ipykernel nbclient
	build/light/bin/python tools/notebooks.py

check: checks test ## what CI runs

checks: ## all but the tests: linter, types, site, step, light install, notebooks, two at a time
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target notebooks lint types site step

step: install ## one training step enters only the files that docs/architecture.md names
	$(BIN)/python tools/trace_step.py --check

site: install ## the documentation as pages, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: install ## time the backup, training programs, and how an update grows (minutes)
	$(BIN)/moca benchmark
	$(BIN)/python benchmarks/growth.py

mutants: install ## break each formula and each rule on purpose; every mutant must be caught (an hour)
	$(BIN)/python tests/mutants.py

results: install ## regenerate figures, pages and claims from the tables in results/
	$(BIN)/python tools/results.py

lock: ## regenerate constraints.txt: make lock PYTHONS="python3.11 python3.12"
	$(PYTHON) tools/lock.py $(PYTHONS)

clean: ## remove what was built
	rm -rf .venv build dist site demo figures .pytest_cache .mypy_cache .ruff_cache */.ruff_cache .hypothesis
