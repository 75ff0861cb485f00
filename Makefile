# Thin on purpose: each target is one or two commands that can also be typed.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO_READY := .venv/.demo-ready
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --dist=loadgroup --no-loadscope-reorder

# Tests start Python some hundred times: its compiled modules are kept, whatever the caller's environment says.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo servers test check bench nightly proto reference docs dist release sparks clean

demo: $(DEMO_READY)
	$(BIN)/python examples/demo.py

servers: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m servers.install

test: servers
	$(PYTEST)

check: $(READY)
	$(PYTEST) -m "not spark and not install and not server and not long"

bench: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m benchmarks

nightly: servers
	PYTEST_TIMEOUT=3600 $(PYTEST) --nightly

proto: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m protoc

reference: $(READY)
	PYTHONPATH=tests/support $(BIN)/python -m reference
	PYTHONPATH=tests/support $(BIN)/python -m gallery

docs: $(READY)
	$(BIN)/python -m mkdocs build --strict

dist: $(READY)
	rm -rf dist
	OFFLOAD_HOOKS="==$$($(BIN)/python -m hatchling version)" $(BIN)/python -m hatchling build
	cd hooks && ../$(BIN)/python -m hatchling build --directory ../dist

# TAG is v and the version; a project without a home of its own is not released.
release: dist
	grep -x 'version = "$(TAG:v%=%)"' pyproject.toml && test "$(TAG)" != "$(TAG:v%=%)"
	! grep example.org pyproject.toml

# The versions of Spark and Python other than the suite's.
sparks: $(READY)
	$(PYTEST) --nightly tests/spark/test_other_sparks.py

clean:
	rm -rf .venv .demo .bench .artefacts dist site

# A .venv that was cut off or whose Python is gone is made anew; any other is brought up to date.
# What the tests need holds what the demo needs.
$(READY): EXTRAS := test
$(DEMO_READY): EXTRAS := spark,cli

$(READY) $(DEMO_READY): pyproject.toml hooks/pyproject.toml constraints.txt
	$(BIN)/python -c "" 2>/dev/null || rm -rf .venv
	test -d .venv || $(PYTHON) -m venv .venv
	OFFLOAD_HOOKS= $(BIN)/python -m pip install --no-compile --quiet --disable-pip-version-check --constraint constraints.txt --editable hooks --editable '.[$(EXTRAS)]'
	touch $(DEMO_READY) $@
