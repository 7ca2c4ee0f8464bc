"""The fixture `captured_kernels`, and what the plugin costs in runs that do not use it."""

from __future__ import annotations

import pytest

from tests.testing.conftest import Project


@pytest.mark.parametrize("words", [(), pytest.param(("-n2",), marks=pytest.mark.nightly)])
def test_figures_are_there_for_plain_assertions(project: Project, words: tuple[str, ...]) -> None:
    project.write(
        "test_figures.py",
        """
import subprocess, sys
def test_figures(captured_kernels):
    assert list(captured_kernels) == []
    kernels.compile_kernel()
    add = captured_kernels["add_kernel"]
    assert (add.spills, add.stack, add.registers, add.arch) == (0, 0, 14, "sm_90a")
    assert "BLOCK=128" in add.specialisation
    assert add.instructions == sum(add.classes.values())
    assert ".entry add_kernel" in add.ptx
    assert (list(captured_kernels), len(captured_kernels)) == (["add_kernel"], 1)
    assert "add_kernel" in captured_kernels and "gemm_kernel" not in captured_kernels
def test_a_kernel_of_an_earlier_test(captured_kernels):
    kernels.compile_gemm()
    assert list(captured_kernels) == ["gemm_kernel"]
    assert captured_kernels["gemm_kernel"].loop_instructions > 0
def test_the_environment_of_child_processes():
    command = [sys.executable, "-c", "import sitecustomize as one; assert 'tritonhook' in one.__file__"]
    for path in (os.environ["PYTHONPATH"], os.pathsep.join(sys.path)):  # torch.compile gives its workers the second
        subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=True)
""",
    )
    done = project.run(*words)
    assert done.code == 0, done.said
    assert "3 passed" in done.said


def test_several_kernels_of_one_name(project: Project) -> None:
    """And after the run the environment is as before."""
    (project.folder / "conftest.py").write_text(
        "import os, sys\n"
        "state = lambda: (dict(os.environ), list(sys.meta_path), list(sys.path))\n"
        "before = state()\n"
        "def pytest_unconfigure(config):\n"
        "    config.add_cleanup(lambda: print('given back', before == state()))\n"
    )
    project.write(
        "test_several.py",
        """
import pytest
def test_earlier(captured_kernels):
    kernels.compile_kernel(block=512)
def test_several(captured_kernels):
    assert captured_kernels["add_kernel"].specialisation[1] == "BLOCK=512"  # of the earlier test
    kernels.compile_kernel(block=128)
    kernels.compile_kernel(block=256)
    kernels.compile_kernel(block=256)  # from Triton's cache
    assert [one.arch for one in captured_kernels.all("add_kernel")] == ["sm_90a", "sm_90a"]
    assert captured_kernels["add_kernel", "BLOCK=256", "sm_90a"] in captured_kernels.all("add_kernel")
    with pytest.raises(KeyError) as error:
        captured_kernels["add_kernel"]
    said = "2 kernels match 'add_kernel'; choose one, as in captured_kernels['add_kernel', 'BLOCK=128']"
    assert said in str(error.value)
    assert "BLOCK=256" in str(error.value) and "BLOCK=512" not in str(error.value)
    with pytest.raises(KeyError, match="matches 'add_kernel', 'BLOCK=9'; kernels of that name:\\n  add_kernel"):
        captured_kernels["add_kernel", "BLOCK=9"]
    with pytest.raises(KeyError, match="no kernel matches 'sub'; captured so far:\\n  add_kernel sm_90a"):
        captured_kernels["sub"]
def test_of_another_source(captured_kernels):
    other = kernels.fresh(kernels.multiply_kernel)
    other.__name__ = other._fn_name = "add_kernel"
    kernels.compile_kernel(other)
    assert "mul.f32" in captured_kernels["add_kernel"].ptx
""",
    )
    done = project.run()
    assert done.code == 0 and "3 passed" in done.said and "given back True" in done.said, done.said


def test_with_a_lock_there_is_one_recording(project: Project) -> None:
    project.write(
        "test_both.py",
        """
def test_both(captured_kernels):
    kernels.compile_kernel()
    assert captured_kernels["add_kernel"].spills == 0
""",
    )
    done = project.run("--kernel-lock=a.lock", "--kernel-update")
    assert (done.code, "1 new" in done.said) == (0, True), done.said


def test_a_run_that_asks_for_nothing_loads_nothing(project: Project) -> None:
    (project.folder / "test_plain.py").write_text(
        "import os, sys\n"
        "def test_plain():\n"
        "    assert 'tritonhook.pytest_plugin' in sys.modules\n"
        "    assert 'TRITONHOOK_RUN' not in os.environ\n"
        "    found = {name for name in sys.modules if name.startswith('tritonhook')}\n"
        "    own = ('pytest_plugin', '_display', '_util', '_util.imports', 'testing')\n"
        "    known = ('tritonhook', *(f'tritonhook.{name}' for name in own))\n"
        "    assert found <= set(known)\n"
        "    assert not {'triton', 'torch', 'msgspec', 'rich'} & set(sys.modules)\n"
    )
    done = project.run(fresh=True)
    assert done.code == 0, done.said
