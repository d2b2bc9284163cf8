# Everything happens in .venv, which the first target that needs it builds.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help install demo test test-slow check lint types light light-tests notebooks bench mutants results site lock clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

install: .venv/installed ## the package with all that tests and pages need, in .venv

.venv/package: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "MoCA needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Installing into .venv (a minute or two) …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[studies]'
	@touch $@

.venv/installed: .venv/package
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: .venv/package ## the main job, on a CPU
	$(BIN)/moca demo

test: install ## all tests but the slow ones
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not slow" --durations 20

test-slow: install ## every test
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

light: install ## build wheel and source distribution, install the wheel alone in build/light, and try it
	rm -rf build/light dist
	$(BIN)/python -m build --quiet
	$(PYTHON) -m venv build/light
	build/light/bin/pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	cd build && light/bin/python ../tools/light.py

light-tests: light ## the closed forms' tests in that environment, without the extras
	build/light/bin/pip install --quiet --disable-pip-version-check -c constraints.txt beartype emukit hypothesis mpmath pytest scipy
	build/light/bin/python -m pytest -m "not slow" tests/moments

notebooks: light ## run the notebooks with few steps, in that environment with the extras they need
	build/light/bin/pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[gymnasium]" ipykernel nbclient
	build/light/bin/python tools/notebooks.py

check: lint types test site notebooks ## linter, types, tests, site, light install, notebooks: what CI runs

site: install ## the documentation as pages, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

bench: install ## time the backup, training programs and their growth (minutes)
	$(BIN)/moca benchmark backup agents growth

mutants: install ## break each formula and each rule on purpose; every mutant must be caught (an hour)
	$(BIN)/python tests/mutants.py

results: install ## figures, pages and claims anew from the tables in results/
	$(BIN)/python tools/results.py

lock: ## write constraints.txt anew: make lock PYTHONS="python3.11 python3.12"
	$(PYTHON) tools/lock.py $(PYTHONS)

clean: ## remove what was built
	rm -rf .venv build dist site demo figures .pytest_cache .mypy_cache .ruff_cache */.ruff_cache .hypothesis
