# make demo: sets up and runs the main job.  make test: sets up and passes the tests.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
RUNS := demo
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

setup: $(BIN)/.done ## a virtual environment in .venv with the tested versions

$(BIN)/.done: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

demo: setup ## FedMuon (on Flower's Ray engine) against LocalMuon, on heterogeneous digits
	rm -rf $(RUNS) && mkdir $(RUNS)
	@echo "LocalMuon trains beside it: $(RUNS)/localmuon.log"
	@$(BIN)/fedmuon algorithm=localmuon engine.workers=0 hydra.run.dir=$(RUNS)/localmuon > $(RUNS)/localmuon.log & \
	rival=$$!; trap "kill $$rival 2> /dev/null" EXIT; \
	$(BIN)/fedmuon algorithm=fedmuon engine=simulation hydra.run.dir=$(RUNS)/fedmuon && wait $$rival
	@$(BIN)/fedmuon-report $(RUNS)

test: setup ## the tests, on two cores
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-long: setup ## the tests that take an hour: kills, losses and delays in real processes
	$(BIN)/python -m pytest -m long

lint: setup ## ruff, mypy and the layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: help setup demo test test-long lint
