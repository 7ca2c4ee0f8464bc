# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
TRITONS ?= 3.6.0 3.7.0 3.8.0 3.9.0

.PHONY: demo test lint test-matrix overhead clean

demo: $(VENV)/.installed
	$(VENV)/bin/tritonhook demo

test: lint
	$(VENV)/bin/python -m pytest

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy --strict tritonhook

# The cache and hook tests against each supported Triton, each in an environment of its own.
test-matrix:
	$(MAKE) $(TRITONS:%=.venv-triton-%/.tested)

# tritonparse is the peer in this benchmark; it and torch go into an environment of their own.
overhead: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/overhead.py --with-tritonparse

$(VENV)/.installed: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tritonhook needs Python 3.10 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

INSTALLED = $(TRITONS:%=.venv-triton-%/.installed)
TESTED = $(TRITONS:%=.venv-triton-%/.tested)

$(INSTALLED): .venv-triton-%/.installed: requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-triton-$*
	sed 's/^triton==.*/triton==$*/' requirements.txt > .venv-triton-$*/requirements.txt
	.venv-triton-$*/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-triton-$*/requirements.txt
	.venv-triton-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

.PHONY: $(TESTED)
$(TESTED): .venv-triton-%/.tested: .venv-triton-%/.installed
	.venv-triton-$*/bin/python -m pytest -q tests

clean:
	rm -rf $(VENV) .venv-triton-*
