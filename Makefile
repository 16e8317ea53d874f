# Every target does its own set-up in .venv and is quiet about it once that is done.
PYTHON ?= python3
CONSTRAINTS ?= constraints.txt
BIN := .venv/bin
# The theme's advertisement for its successor is not a result of ours.
export NO_MKDOCS_2_WARNING := 1
# Dozens of processes of the tests read the same files: compile each once.
export PYTHONDONTWRITEBYTECODE :=
READY := .venv/.ready
# A minute of tests that touch every mechanism once; `make test` runs them all.
FAST := tests/budget tests/core tests/gates tests/graph/ops tests/meta/test_api_is_documented.py \
	tests/meta/test_public_surface.py tests/meta/test_repository.py tests/surgery/test_apply.py \
	tests/surgery/test_compare.py tests/surgery/test_keep_masks.py tests/surgery/test_plan.py

.PHONY: demo test test-all check run-tests run-all-tests run-fast-tests lint fmt site docs \
	bench coverage choice clean

demo: $(READY)
	@$(BIN)/diffprune demo

# Beside the tests runs what needs one core: linters, types and the site. What these say is
# shown when they end, and what the tests say as they go; whatever fails, fails the whole.
TOGETHER := $(MAKE) --no-print-directory --jobs 3 --output-sync=target
PYTEST := $(BIN)/pytest -q -n 2 --dist worksteal

test: $(READY)
	@$(TOGETHER) lint site run-tests

test-all: $(READY)
	@$(TOGETHER) lint site run-all-tests

check: $(READY)
	@$(TOGETHER) lint run-fast-tests

run-tests: $(READY)
	+@$(PYTEST) -m "not slow"

run-all-tests: $(READY)
	+@$(PYTEST)

run-fast-tests: $(READY)
	+@$(PYTEST) -m "not slow" $(FAST)

fmt: $(READY)
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

lint: $(READY)
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache > /dev/null || $(BIN)/lint-imports

site: $(READY)
	@$(BIN)/mkdocs build --strict

docs: site
	@echo "documentation written to site/index.html"

bench: $(READY)
	@$(BIN)/python -m benchmarks

# Hundreds of public architectures, in an environment of their own: hours, resumable.
coverage: .venv-coverage/.ready
	@.venv-coverage/bin/python -m benchmarks.coverage

# Against Torch-Pruning at equal cost and compute, in an environment of its own: hours,
# resumable.
choice: .venv-choice/.ready
	@OMP_NUM_THREADS=1 .venv-choice/bin/python -m benchmarks.choice

clean:
	rm -rf .venv site .pytest_cache .ruff_cache

.venv-coverage/.ready: pyproject.toml constraints.txt benchmarks/coverage/requirements.txt
	@test -x .venv-coverage/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-coverage
	@.venv-coverage/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e . \
		-r benchmarks/coverage/requirements.txt
	@touch $@

.venv-choice/.ready: pyproject.toml $(CONSTRAINTS)
	@test -x .venv-choice/bin/python || $(PYTHON) -m venv --upgrade-deps .venv-choice
	@.venv-choice/bin/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[lab]' \
		--group paper torch-pruning==1.6.1
	@touch $@

$(READY): pyproject.toml $(CONSTRAINTS)
	@echo "setting up .venv (about two minutes, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv --upgrade-deps .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check -c $(CONSTRAINTS) -e '.[all]' --group dev 2>&1 \
		| grep -v '^WARNING' || true
	@$(BIN)/python -c "import diffprune, sklearn, pytest" && touch $@
