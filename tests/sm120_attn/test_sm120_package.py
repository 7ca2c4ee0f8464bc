"""The package as a whole: what importing it costs and offers, and whom it knows."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import sm120_attn

PACKAGE = Path(sm120_attn.__file__).parent


def test_import_loads_nothing_heavy() -> None:
    code = (
        "import sys, sm120_attn, sm120_attn.config, sm120_attn.cases; "
        "print(sorted({m.split('.')[0] for m in sys.modules} & {'torch', 'cutlass', 'cuda', 'tvm_ffi', 'hypothesis'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=PACKAGE.parent)
    assert done.stdout.strip() == "[]"


def test_every_public_name_resolves() -> None:
    for name in sm120_attn.__all__:
        if name in ("attention", "attention_reference"):
            pytest.importorskip("torch", reason="attention needs torch: pip install torch")
        assert getattr(sm120_attn, name).__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = sm120_attn.nonsense


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: path.name)
def test_no_module_knows_the_other_packages(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0}
    names |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    assert not {name.split(".")[0] for name in names} & {"tritonhook", "gluon_kernels"}


def test_no_verb_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    from sm120_attn.__main__ import main

    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
    assert "check|bench|inspect|selftest" in capsys.readouterr().err
