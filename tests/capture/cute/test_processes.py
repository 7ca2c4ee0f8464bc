"""Processes with CuTe kernels under `tritonhook run`, and programs that enable tritonhook."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hangs import HANG_S

pytest.importorskip("cutlass.base_dsl", reason="needs the CuTe DSL: `make test-cute` installs and tests it")

from cute_sessions import ADD, PLAIN_ADD
from repository import ROOT, SUPPORT


def python(tmp_path: Path, *command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python in another process and folder, with the tests' kernels at hand."""
    base = {n: v for n, v in os.environ.items() if not n.startswith("TRITONHOOK")}
    paths = [str(ROOT), str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=tmp_path,
        env=base | {"PYTHONPATH": os.pathsep.join(paths)} | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
    )
    assert done.returncode == 0, done.stderr
    return done


def test_enabling_imports_no_cutlass_and_waits_for_it(tmp_path: Path) -> None:
    code = f"""
import sys, tritonhook
session = tritonhook.enable({str(tmp_path / "out")!r}, strip=True)
assert "cutlass" not in sys.modules
import cute_kernels
cute_kernels.compiled()
assert not any(type(finder).__name__ == "AfterImport" for finder in sys.meta_path)
print([c.kernel for c in session.captures])
"""
    done = python(tmp_path, "-c", code)
    assert done.stdout.strip() == str([PLAIN_ADD])
    assert "tritonhook: 1 kernel seen" in done.stderr


@pytest.mark.parametrize(
    ("options", "expected"), [((), ADD), (("--strip",), PLAIN_ADD), (("--prefix", "x_"), f"x_{ADD}")]
)
def test_run(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    script = tmp_path / "script.py"
    script.write_text("import cute_kernels as k\nprint(k.kernels_in(k.compiled()), k.asked_for(k.compiled()))\n")
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", *options, str(script))
    assert done.stdout.strip() == f"{[expected]} {[expected]}"
    assert "tritonhook: 1 kernel seen, 0 from cache" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".py") == ["cwd", "out", "tmp"]


def test_a_program_that_enables_within_a_run(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import tritonhook, cute_kernels as k\ntritonhook.enable('mine', rename='b_')\n"
        "print(k.kernels_in(k.compiled()))\ntritonhook.disable()\nprint(k.kernels_in(k.compiled()))\n"
    )
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", "--prefix", "a_", str(script))
    assert done.stdout.split() == [f"['b_a_{ADD}']", f"['a_{ADD}']"]


def test_the_example(tmp_path: Path) -> None:
    done = python(tmp_path, str(ROOT / "examples" / "cute_dsl.py"))
    plain, stripped = done.stdout.splitlines()
    assert plain.startswith("kernel_cutlass_scale_kernel_")
    assert stripped.startswith("kernel_scale_kernel_")
    done = python(tmp_path, "-m", "tritonhook", "run", "--strip", str(ROOT / "examples" / "cute_dsl.py"), "--plain")
    assert "tritonhook: 1 kernel seen" in done.stderr


def test_a_package_called_cutlass_that_is_no_dsl(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "cutlass.py").write_text("__version__ = '3.5'\n")
    script = tmp_path / "script.py"
    script.write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'old')!r})\nimport cutlass\nprint(cutlass.__version__)"
    )
    done = python(tmp_path, "-m", "tritonhook", "run", "--out", "out", str(script))
    assert done.stdout.strip() == "3.5"
    assert "tritonhook: 0 kernels seen" in done.stderr
    assert "Error" not in done.stderr
