"""Which sources count for a kernel: those that make its code, and no others."""

import ast
import shutil
from pathlib import Path

import pytest

from sm120_attn.compile import build
from sm120_attn.kernels.append.config import AppendConfig
from sm120_attn.kernels.decode.config import DecodeConfig
from sm120_attn.kernels.probe.config import ProbeConfig
from sm120_attn.kernels.quantize.config import QuantizeConfig

KINDS = tuple(build.FAMILIES)
PACKAGE = build.PACKAGE


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package whose sources are hashed."""
    folder = tmp_path / "sm120_attn"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(build, "PACKAGE", folder)
    return folder


def changed_by_a_comment(path: Path) -> set[type]:
    """The kinds of kernels whose hash changes with a comment in this file."""
    before = {kind: build.source_hash.__wrapped__(kind) for kind in KINDS}
    text = path.read_text()
    path.write_text(text + "# a comment\n")
    after = {kind: build.source_hash.__wrapped__(kind) for kind in KINDS}
    path.write_text(text)
    return {kind for kind in KINDS if before[kind] != after[kind]}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("verify/check.py", set()),
        ("verify/bench.py", set()),
        ("api.py", set()),
        ("planner.py", set()),
        ("launch/prepare.py", set()),
        ("quantization/launch.py", set()),
        ("config.py", set(KINDS)),
        ("kernels/softmax.py", set(KINDS)),
        ("compile/compiler.py", set(KINDS)),
        ("kernels/quantize/kernel.py", {QuantizeConfig}),
        ("kernels/probe/kernel.py", {ProbeConfig}),
        ("kernels/decode/config.py", {DecodeConfig, AppendConfig}),
        ("kernels/decode/combine.py", {DecodeConfig}),
    ],
)
def test_a_comment_makes_only_kernels_of_this_code_compile_again(copy: Path, name: str, kinds: set[type]) -> None:
    assert changed_by_a_comment(copy / name) == kinds


@pytest.mark.parametrize("kind", KINDS)
def test_device_code_imports_nothing_that_is_not_hashed(kind: type) -> None:
    """Else a change there would leave old kernels in the cache. compile/ itself imports the configs of all kinds."""
    hashed = set(build.source_files(kind))
    device_code = [file for file in hashed if file.parent.name != "compile"]
    assert len(device_code) > 10
    for file in device_code:
        assert imported(file) <= hashed, file


def imported(file: Path) -> set[Path]:
    """Files of the package that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            module = file.parents[node.level - 1].joinpath(*(node.module or "").split("."))
            if module.with_suffix(".py").exists():
                found.add(module.with_suffix(".py"))
            else:
                names = [module / f"{alias.name}.py" for alias in node.names]
                found |= {name if name.exists() else module / "__init__.py" for name in names}
    return found
