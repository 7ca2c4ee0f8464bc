"""pytest plugin: compare the kernels that tests compile with a lock, and use their figures in assertions.

    pytest --kernel-lock
    pytest --kernel-lock=other.lock --kernel-update
    pytest --kernel-arch=sm_90a    # without a GPU
    pytest --kernel-arch=sm_90a --kernel-verify
    pytest --kernel-arch=sm_90a --kernel-emulate    # launches are executed on the CPU

    def test_add(captured_kernels):
        add(x, y)
        assert captured_kernels["add"].spills == 0

pytest loads this file in every run, but modules in tritonhook/testing/ only if an option or a test needs them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tritonhook.testing import NEED_EMULATE

if TYPE_CHECKING:
    from tritonhook.testing.kernels import CapturedKernels

_FIXTURE = "captured_kernels"
_RUN = "tritonhook-fixture"  # name of the plugin that serves the fixture; registered only if a test uses it


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tritonhook", "machine code of GPU kernels (tritonhook)")
    group.addoption(
        "--kernel-lock",
        nargs="?",
        const="",
        metavar="FILE",
        help="compare the kernels that the tests compile with this lock (default: the project's, else tritonhook.lock)",
    )
    group.addoption("--kernel-update", action="store_true", help="write the kernels to the lock, instead of comparing")
    group.addoption(
        "--kernel-fail-on", metavar="RULE,...", help="fail only for these rules, as `tritonhook check --fail-on` does"
    )
    group.addoption("--kernel-captures", metavar="DIR", help="keep the captures in this new folder")
    group.addoption(
        "--kernel-arch", metavar="sm_XX", help="dry run, without a GPU: compile for this architecture, launch nothing"
    )
    group.addoption(
        "--kernel-verify",
        action="store_true",
        help="with --kernel-arch: also fail if ptxas's code computes other results than its PTX (both on the CPU)",
    )
    group.addoption(
        "--kernel-emulate",
        action="store_true",
        help="with --kernel-arch: execute each launch on the CPU, so that tests can check the values of tensors",
    )
    group.addoption(
        "--kernel-sanitize",
        action="store_true",
        help="with --kernel-emulate: fail tests with a race, a read of uninitialised memory or another fault (slower)",
    )
    group.addoption(
        "--kernel-suppress", metavar="FILE", help="with --kernel-sanitize: TOML file with findings to ignore"
    )
    group.addoption(
        "--kernel-bounds",
        choices=("storage", "view"),
        metavar="WHAT",
        help="with --kernel-sanitize: an access is out of bounds if it leaves the tensor's storage (default) or view",
    )
    group.addoption(
        "--kernel-limit",
        type=float,
        metavar="SECONDS",
        help="with --kernel-emulate: skip a test whose launches take longer (default: 60)",
    )
    group.addoption(
        "--kernel-shrink",
        type=float,
        metavar="MIB",
        help="with --kernel-emulate: if a launch has larger tensors, only compile it and the rest of the test",
    )


def pytest_configure(config: pytest.Config) -> None:
    arch = config.getoption("kernel_arch") or config.getoption("kernel_emulate")
    only_listed = config.getoption("collectonly")
    records = arch or config.getoption("kernel_lock") is not None
    if records and hasattr(config, "workerinput") and not only_listed:
        from tritonhook.testing.recording import hand_on

        hand_on()  # here too: a worker of pytest-xdist does not inherit what its controller has added to sys.path
    if arch and not only_listed:
        from tritonhook.testing import dry_tests

        dry_tests.register(config)
    if config.getoption("kernel_verify") and not arch:
        raise pytest.UsageError("--kernel-verify: only with --kernel-arch, because a dry run records the launches")
    if config.getoption("kernel_lock") is not None and not only_listed:
        from tritonhook.testing import lock_run

        lock_run.register(config)
    if config.getoption("kernel_verify") and not only_listed:
        from tritonhook.testing import lock_run

        lock_run.register_verify(config)
    if config.getoption("kernel_lock") is not None and not only_listed:
        return
    if not arch and (needs := [name for name in NEED_EMULATE if config.getoption(f"kernel_{name}")]):
        raise pytest.UsageError(f"--kernel-{needs[0]}: only with --kernel-arch and --kernel-emulate")
    for option in ("update", "fail_on", *(() if arch else ("captures",))):
        if config.getoption(f"kernel_{option}"):
            raise pytest.UsageError(f"--kernel-{option.replace('_', '-')}: only with --kernel-lock")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start capturing before the first test, if a test uses the fixture."""
    plugins = session.config.pluginmanager
    if session.config.getoption("collectonly") or plugins.has_plugin(_RUN):
        return
    if any(_FIXTURE in getattr(item, "fixturenames", ()) for item in session.items):
        from tritonhook.testing.kernels import FixtureRun

        plugins.register(FixtureRun(), _RUN)


@pytest.fixture
def captured_kernels(request: pytest.FixtureRequest) -> CapturedKernels:
    """Collect the kernels that this test has compiled so far, by name, e.g. captured_kernels["add"].spills."""
    from tritonhook.testing.kernels import FixtureRun

    run = request.config.pluginmanager.get_plugin(_RUN)
    assert isinstance(run, FixtureRun)  # pytest_collection_finish registered it
    return run.kernels
