"""The package as a whole: what importing it costs and offers."""

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from _pytest.assertion.rewrite import AssertionRewriter
from repository import ROOT

import tritonhook


def printed(code: str) -> str:
    """What a new process prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_loads_nothing_heavy() -> None:
    heavy = ["triton", "torch", "rich", "elftools", "msgspec", "rapidfuzz", "pynvml"]
    heavy += ["argparse", "subprocess", "dataclasses"]
    assert printed(f"import sys, tritonhook; print([m for m in {heavy} if m in sys.modules])") == "[]"


def test_a_program_that_is_captured_loads_no_schema() -> None:
    code = "import sys, tritonhook.capture.session, tritonhook.capture.store.writer; print('msgspec' in sys.modules)"
    assert printed(code) == "False"


def test_enable_loads_neither_the_driver_nor_what_only_encoded_descriptors_need(tmp_path: Path) -> None:
    needed = [f"tritonhook.{m}" for m in ("device.cuda_driver", "capture.launches.tensor_map")]
    needed += ["tritonhook.capture.launches.live_tensors", "msgspec"]
    code = (
        f"import sys, tritonhook; tritonhook.enable({str(tmp_path)!r}); "
        f"print('tritonhook.capture.session' in sys.modules, [m for m in {needed} if m in sys.modules])"
    )
    assert printed(code) == "True []"


@pytest.mark.parametrize("name", tritonhook.__all__)
def test_every_public_name_resolves(name: str) -> None:
    value = getattr(tritonhook, name)
    assert value is not None
    if callable(value) and name != "TritonHookError":
        assert value.__doc__, f"{name} has no docstring"


def test_public_names_survive_the_import_of_every_submodule() -> None:
    # A submodule named like a function would replace it in the package's namespace.
    code = (
        "import tritonhook, pkgutil, importlib, types\n"
        "for m in pkgutil.iter_modules(tritonhook.__path__):\n"
        "    if m.name not in ('__main__',): importlib.import_module('tritonhook.' + m.name)\n"
        "print([n for n in tritonhook.__all__ if isinstance(getattr(tritonhook, n), types.ModuleType)])"
    )
    assert printed(code) == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tritonhook.nonsense


def test_python_dash_m_works() -> None:
    done = subprocess.run([sys.executable, "-m", "tritonhook", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"tritonhook {tritonhook.__version__}"


def test_a_package_offers_its_main_name_and_loads_it_late() -> None:
    code = (
        "import sys, tritonhook.cubin as p; early = 'tritonhook.cubin.image' in sys.modules\n"
        "from tritonhook.cubin import Cubin; from tritonhook.cubin.image import Cubin as own\n"
        "print(early, Cubin is own, hasattr(p, 'nonsense'))"
    )
    assert printed(code) == "False True False"


def test_pytest_does_not_warn_where_tritonhook_is_imported_before_it() -> None:
    """It would for a package with a plugin whose assertions it can rewrite no more, as in processes under `run`."""
    assert AssertionRewriter.is_rewrite_disabled(tritonhook.__doc__ or "")


@pytest.mark.skipif(importlib.util.find_spec("setuptools") is None, reason="needs setuptools")
def test_the_wheel_has_tritonhook_alone_and_is_small(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    for name in ("tritonhook", "gluon_kernels", "sm120_attn"):
        shutil.copytree(ROOT / name, clone / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", *words, "-w", str(tmp_path), str(clone)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    assert "Project-URL" not in metadata  # only a release knows its repository: tests/ci/test_workflows.py
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {"tritonhook"}
    assert {"tritonhook/report/templates/page.css", "tritonhook/py.typed"} <= set(names)
    assert wheel.stat().st_size < 1_200_000  # bytes: nothing but sources and templates of pages
