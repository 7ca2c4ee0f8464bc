# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
TRITONS ?= 3.6.0 3.7.0 3.7.1 3.8.0 3.9.0
CUTES ?= 4.6.0 4.6.3 4.7.1 4.8.1
PARALLEL ?= -n auto
# Tests without torch wait for processes most of their time: three workers for two cores.
FIRST_PARALLEL ?= -n $(shell $(PYTHON) -c 'import os; print(max(2, os.cpu_count() * 3 // 2))')

.PHONY: demo test test-first fuzz fuzz-ptxas newest-ptxas test-torch lint typecheck cog cog-check docs goals test-cute test-cute-matrix test-matrix test-workflows test-nightly stress overhead mutants lock-benchmark upgrades clean

demo: $(or $(wildcard $(VENV)/.installed),$(VENV)/.runs)
	$(VENV)/bin/tritonhook demo

# Tests start thousands of Python processes: what these load is compiled once, when the first one loads it.
unexport PYTHONDONTWRITEBYTECODE

# Every test in one of three environments: without torch and the CuTe DSL; with torch on the CPU (200 MB); with the CuTe
# DSL (105 MB) and torch. A step that fails stops no other one: the last lines say what failed, what did not run and which
# tests ran nowhere. A machine that cannot install an environment leaves it out by name: `make test WITHOUT="torch cute"`.
# pip takes one core, and tests wait for processes: two steps run side by side. The output of a step comes at its end.
WITHOUT ?=
STEPS = lint test-first $(filter-out $(WITHOUT:%=test-%),test-torch test-cute)
test:
	rm -rf $(RAN)
	-$(MAKE) -j3 --keep-going $(VENV)/.installed $(if $(filter test-torch,$(STEPS)),.venv-torch/.installed) \
		$(if $(filter test-cute,$(STEPS)),.venv-cute-4.8.1/.installed)
	-$(MAKE) newest-ptxas
	$(MAKE) -j2 --output-sync=recurse $(STEPS:%=step-%)
	$(PYTHON) tests/support/ran_somewhere.py $(RAN) $(STEPS) $(WITHOUT:%=--without %)

# One step of `make test`: it notes that it passed.
step-%:
	mkdir -p $(RAN)/$*
	if TESTS_RAN=$(RAN)/$* $(MAKE) $*; then touch $(RAN)/$*/passed; fi
step-test-cute: | $(filter step-test-torch,$(STEPS:%=step-%))

test-first: $(VENV)/.installed
	$(TESTS_CACHE) $(VENV)/bin/python -m pytest $(FIRST_PARALLEL) --dist worksteal --durations=20

# The newest ptxas, in the cache that tests take: 47 MB.
newest-ptxas: $(VENV)/.installed
	$(TESTS_CACHE) $(VENV)/bin/tritonhook ptxas add 13.5.37

TESTS_CACHE = XDG_CACHE_HOME="$(CURDIR)/$(VENV)/cache"
RAN = "$(CURDIR)/.tests-ran"

# What `make test` leaves out, as it takes long: sweeps over versions, architectures and configurations.
test-nightly: export NIGHTLY = 1
test-nightly: newest-ptxas .venv-torch/.installed
	$(TESTS_CACHE) $(VENV)/bin/python -m pytest -q $(PARALLEL) -m nightly
	.venv-torch/bin/python -m pytest -q $(PARALLEL) -m nightly $(TORCH_TESTS)

# The fuzzers of tests/abuse with new inputs each time, EXAMPLES for each test; `make test` tries 30, always the same.
EXAMPLES ?= 2000
fuzz: $(VENV)/.installed
	FUZZ_EXAMPLES=$(EXAMPLES) $(VENV)/bin/python -m pytest -q tests/abuse

# Made-up PTX by the newest installed ptxas, emulated in both forms: PROGRAMS of them, others with another SEED.
PROGRAMS ?= 2000
SEED ?= 0
fuzz-ptxas: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks fuzz_ptxas --programs $(PROGRAMS) --seed $(SEED)

# The steps of each workflow in .github/workflows, in fresh clones: hours. `make test-nightly` builds a release so.
test-workflows: $(VENV)/.installed
	WORKFLOWS=all $(VENV)/bin/python -m pytest -q tests/ci

lint: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(VENV)/bin/python .ci/named_imports.py tritonhook
	$(MAKE) --no-print-directory typecheck cog-check

# The modules in support/ are found as tests import them, by their own names.
typecheck: $(VENV)/.installed
	$(VENV)/bin/mypy --strict tritonhook gluon_kernels sm120_attn docs/_cog
	$(VENV)/bin/mypy --config-file tests/mypy.ini $$(find tests benchmarks -name '*.py' -not -path '*/support/*')

# The tables in README and docs come from benchmarks/results/: `make cog` writes them again.
cog: $(VENV)/.installed
	$(VENV)/bin/python -m cogapp -r -I docs/_cog $(COGGED)

cog-check: $(VENV)/.installed
	$(VENV)/bin/python -m cogapp --check --diff -I docs/_cog $(COGGED)

COGGED = $(shell grep -rlF '[[[cog' README.md CONTRIBUTING.md docs --include='*.md')

# The documentation site, in an environment of its own. Strict: a warning is an error.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict

.venv-docs/.installed: requirements.txt requirements-docs.txt pyproject.toml
	$(PYTHON) -m venv .venv-docs
	sed '/^\(triton\|mypy\|pytest.*\|hypothesis\|selenium\|distributed\|nvidia-ml-py\|zizmor\|check-jsonschema\)==/d' requirements.txt > .venv-docs/requirements.txt
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check \
		-r .venv-docs/requirements.txt -r requirements-docs.txt
	.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The tests that need torch, beside Triton.
TORCH_TESTS = tests/emulate/test_dry_launches.py tests/capture/test_inductor.py \
	tests/capture/dry_run/test_torch.py tests/capture/dry_run/test_torch_precision.py \
	tests/capture/dry_run/test_without_storage.py \
	tests/gluon_kernels/test_api.py tests/gluon_kernels/test_cli.py \
	tests/gluon_kernels/verify tests/gluon_kernels/test_hot_path.py tests/gluon_kernels/test_torch_op.py \
	tests/timing/test_output_check.py tests/timing/test_worker.py tests/memory/test_torch_operators.py \
	tests/cli/test_lock_bits.py tests/cli/test_emulate_configs.py tests/cli/test_verify_bits.py tests/emulate/sanitizer/test_unset.py tests/emulate/sanitizer/test_streams.py \
	tests/docs/test_findings.py tests/cli/test_counted.py::test_an_emulated_run_counts_its_kernels \
	$(addprefix tests/children/test_processes.py::,test_torchrun test_the_users_own_startup_files_still_run)

test-torch: $(VENV)/.installed .venv-torch/.installed
	.venv-torch/bin/python -m pytest -q $(PARALLEL) --dist loadfile --durations=5 $(TORCH_TESTS)

# torch alone, which takes the rest from $(VENV).
.venv-torch/.installed: requirements-torch.txt
	$(PYTHON) -m venv .venv-torch
	$(call finds_packages_of,.venv-torch,$(VENV),import site; site.addsitedir({path!r}))
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r requirements-torch.txt
	touch $@

# An environment that finds the packages of another one too: the name of its folder, that of the other one, the line that
# names the other one's {path}.
finds_packages_of = $(1)/bin/python -c 'import pathlib, site; [pathlib.Path(own, "shared.pth").write_text(f"$(3)\n") \
	for own in site.getsitepackages() for path in [own.replace("/$(1)/", "/$(2)/")]]'

# The CuTe DSL's tests, in an environment that has the DSL and no triton; `make test-cute-matrix` for all its versions.
test-cute: .venv-cute-4.8.1/.tested

test-cute-matrix: $(CUTES:%=.venv-cute-%/.tested)

# What depends on the version of Triton, against each supported one, each in an environment of its own. Other tests take
# the ptxas of Triton 3.6.
MATRIX_TESTS = tests/capture tests/children tests/gluon_kernels tests/testing
test-matrix test-cute-matrix: export NIGHTLY = 1
test-matrix:
	$(MAKE) $(TRITONS:%=.venv-triton-%/.tested)

# Which figures in benchmarks/results/ reach what they should.
goals: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks goals

# What new versions of ptxas and Triton do to kernels of libraries. Captures and outcomes stay in .upgrades: a run that was
# stopped goes on, and a second one does only what is new. UPGRADES=--scheduler=tcp://host:8786 spreads it.
NEWER_TRITONS ?= 3.7.1 3.8.0 3.9.0
upgrades: .venv-upgrades/.installed
	.venv-upgrades/bin/python -m benchmarks upgrades --fetch --work .upgrades/captures --cache .upgrades/outcomes \
		--triton $(NEWER_TRITONS:%=.venv-upgrades/triton-%) $(UPGRADES)

.venv-upgrades/.installed: requirements.txt requirements-upgrades.txt pyproject.toml
	$(PYTHON) -m venv .venv-upgrades
	.venv-upgrades/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	.venv-upgrades/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements-upgrades.txt
	.venv-upgrades/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	.venv-upgrades/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-torch.txt
	for version in $(NEWER_TRITONS); do .venv-upgrades/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --target .venv-upgrades/triton-$$version triton==$$version || exit; done
	touch $@

# 1,000 rounds of threads, forks and sessions on the oldest and the newest Triton; `make test` runs a few.
stress: $(foreach version,$(firstword $(TRITONS)) $(lastword $(TRITONS)),.venv-triton-$(version)/.stressed)

.PHONY: $(TRITONS:%=.venv-triton-%/.stressed)
$(TRITONS:%=.venv-triton-%/.stressed): .venv-triton-%/.stressed: .venv-triton-%/.installed
	TRITONHOOK_STRESS_ROUNDS=1000 .venv-triton-$*/bin/python -m pytest -q tests/capture/triton/test_stress.py

# tritonparse is the peer in this benchmark; it and torch go into an environment of their own.
overhead: $(VENV)/.installed
	$(VENV)/bin/python -m benchmarks overhead --with-tritonparse

# Mutation testing: hours. SAMPLE mutants of logic and numbers are drawn. The first run of mutmut, for no mutant, makes them
# and finds which tests reach them. The environment has mutmut and not tritonhook, because the mutated copy in mutants/ must
# be the one that tests import.
SAMPLE ?= 4000
mutants:
	@test -x $(VENV)-mutants/bin/mutmut || { $(PYTHON) -m venv $(VENV)-mutants && \
	  $(VENV)-mutants/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt -r requirements-torch.txt \
	    mutmut==3.8.1; }
	mkdir -p mutants  # Python never looks again at a folder of PYTHONPATH that was not there when it started
	$(TESTS_CACHE) PYTHONPATH="$(CURDIR)/mutants" $(VENV)-mutants/bin/python -m benchmarks.mutants
	$(TESTS_CACHE) PYTHONPATH="$(CURDIR)/mutants" PATH="$(CURDIR)/$(VENV)-mutants/bin:$$PATH" \
		$(VENV)-mutants/bin/python -m benchmarks mutants --sample $(SAMPLE)

# Changes of machine code that are found; TRITON_TUTORIALS names the folder python/tutorials of Triton's repository.
# `make lock-benchmark ONLY=timed` measures the times again, with the kernels that were compiled before.
lock-benchmark: $(VENV)/.installed .venv-triton-3.9.0/.installed
	$(VENV)/bin/python -m benchmarks lock --work $(VENV)/lock-benchmark $(if $(ONLY),--only $(ONLY)) \
		--other-triton "$$(echo "$(CURDIR)"/.venv-triton-3.9.0/lib/python3*/site-packages)"

# Triton, and what tritonhook itself needs ...
$(VENV)/.runs: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tritonhook needs Python 3.10 or newer; set PYTHON=")'
	@echo "Installing Triton into $(VENV): about 250 MB to download, once"
	$(PYTHON) -m venv $(VENV)
	sed '/^# For tests/,$$d' requirements.txt > $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r $(VENV)/requirements.txt
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# ... and with the test tools.
$(VENV)/.installed: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "tritonhook needs Python 3.10 or newer; set PYTHON=")'
	@echo "Installing Triton and the test tools into $(VENV): about 350 MB to download, once"
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --no-compile -r requirements.txt
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
	.venv-triton-$*/bin/python -m pytest -q $(PARALLEL) $(MATRIX_TESTS)

CUTE_TESTS = tests/capture/cute tests/cubin/test_fatbin.py tests/test_package.py \
	$(if $(filter 4.8.%,$*),tests/capture/dry_run/test_cute.py tests/sm120_attn tests/examples)
# A ptxas of the same version as the one inside the DSL, where the package index has it (of 4.6 and 4.7, 13.3.27, not).
CUTE_PTXAS = $(if $(filter 4.8.%,$*),13.4.59)

$(CUTES:%=.venv-cute-%/.installed): .venv-cute-%/.installed: requirements.txt requirements-cute.txt pyproject.toml
	$(PYTHON) -m venv .venv-cute-$*
	sed '/^\(triton\|mypy\|ruff\|import-linter\|zizmor\|check-jsonschema\)==/d' requirements.txt > .venv-cute-$*/requirements.txt
	sed 's/^\(nvidia-cutlass-dsl.*\)==.*/\1==$*/' requirements-cute.txt > .venv-cute-$*/requirements-cute.txt
	.venv-cute-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -r .venv-cute-$*/requirements.txt
	.venv-cute-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps \
		-r .venv-cute-$*/requirements-cute.txt
	.venv-cute-$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	$(if $(filter 4.8.%,$*),$(call finds_packages_of,.venv-cute-$*,.venv-torch,{path}))
	touch $@

# torch without triton, which the packages of $(VENV) have.
$(patsubst %,.venv-cute-%/.tested,$(filter 4.8.%,$(CUTES))): .venv-torch/.installed

.PHONY: $(CUTES:%=.venv-cute-%/.tested)
$(CUTES:%=.venv-cute-%/.tested): .venv-cute-%/.tested: .venv-cute-%/.installed
	$(if $(CUTE_PTXAS),TRITONHOOK_CACHE="$(CURDIR)/.venv-cute-$*/cache" .venv-cute-$*/bin/tritonhook ptxas add $(CUTE_PTXAS))
	TRITONHOOK_CACHE="$(CURDIR)/.venv-cute-$*/cache" .venv-cute-$*/bin/python -m pytest -q $(PARALLEL) --dist loadfile $(CUTE_TESTS)

clean:
	rm -rf $(VENV) .venv-torch .venv-triton-* .venv-cute-* .venv-docs .venv-upgrades site
