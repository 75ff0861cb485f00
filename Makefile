# Thin on purpose: each target is one or two commands that can also be typed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
PYTEST := $(BIN)/python -m pytest

# Folders of tests that wait for servers and JVMs. The others compute; both run at once.
WAITING := broker drivers oracle servers spark stores

.PHONY: demo test test-waiting test-computing check bench nightly proto reference docs clean

demo: $(READY)
	$(BIN)/python examples/demo.py

test: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m servers.install
	$(MAKE) --keep-going --jobs=2 test-waiting test-computing

test-waiting: $(READY)
	$(PYTEST) $(WAITING:%=tests/%)

# What it says comes when it has ended, not in between the lines of the other half.
test-computing: $(READY)
	$(PYTEST) $(WAITING:%=--ignore=tests/%) > .computing.log 2>&1; code=$$?; cat .computing.log; exit $$code

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST) -q -m "not spark and not install and not server"

bench: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m benchmarks

nightly: $(READY)
	$(PYTEST) --nightly

proto: $(READY)
	cd proto && ../$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. offload_proto/*.proto

reference: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m reference

docs: $(READY)
	$(BIN)/python -m mkdocs build --strict

clean:
	rm -rf .venv .demo .bench .computing.log site

# A .venv that was cut off or whose Python is gone is made anew; any other is brought up to date.
$(READY): pyproject.toml constraints.txt
	$(BIN)/python -c "" 2>/dev/null || rm -rf .venv
	test -d .venv || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $(READY)
