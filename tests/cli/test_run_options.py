"""Options of `tritonhook run` that do not go together: the program does not start."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import failing


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--autotune all", "--autotune is for dry runs"),
        ("--memory real", "--memory is for dry runs"),
        ("--ptxas-limit 3", "--ptxas-limit is for dry runs"),
        ("--emulate", "--emulate is for dry runs"),
        ("--arch sm_90a --sanitize", "--sanitize: only with --emulate"),
        ("--arch sm_90a --suppress known.toml", "--suppress: only with --sanitize"),
        ("--arch sm_90a --bounds view", "--bounds: only with --sanitize"),
        ("--arch sm_90a --pin p.toml", "--pin: a dry run measures nothing"),
        ("--arch sm_90a --autotune pinned", "--autotune pinned: give --policy"),
        ("--arch sm_90a --emulate", "--emulate needs numpy"),
        ("--arch sm_90a --launch-values", "--launch-values: a dry run has no values"),
        ("--gpu H100 --ptxas-limit 0", "--ptxas-limit 0.0: give a number above 0"),
        ("--pin p.toml --policy q.toml", "--pin: not allowed with --policy"),
        ("--only [", "["),
        ("--out script.py/x", "cannot keep captures there"),
        ("--prefix 1", "cannot start or be a PTX name"),
    ],
)
def test_what_does_not_go_together_is_refused(words: str, said: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").write_text("open('started', 'w')")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert said in failing(capsys, "run", *words.split(), "script.py")
    assert not Path("started").exists()
