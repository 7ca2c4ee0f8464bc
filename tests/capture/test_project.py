"""The settings of a project, in its pyproject.toml."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tritonhook.capture.project import Project, lock_path, read_project
from tritonhook.errors import UsageError


@pytest.fixture
def project(tmp_path: Path):
    """Write a project's table; returns its file."""

    def write(*lines: str, table: str = "[tool.tritonhook]") -> Path:
        path = tmp_path / "pyproject.toml"
        path.write_text("\n".join((table, *lines)) + "\n")
        return path

    return write


def test_all_settings_are_read_and_paths_are_the_projects(project) -> None:
    path = project(
        *('out = "captures"', 'only = "^a"', 'ptxas = "13.5.37"', 'rewrites = ["tma-cta"]', 'lock = "/locks/a.lock"'),
        *("max_registers = 168", 'allow_spills = ["gemm*"]'),
    )
    folder = path.parent
    found = read_project(folder)
    out = str(folder / "captures")
    expected = Project(path, out, "^a", "13.5.37", ("tma-cta",), None, "/locks/a.lock", 168, ["gemm*"])
    assert found == expected
    values = {"out": out, "only": "^a", "ptxas": "13.5.37", "lock": "/locks/a.lock", "rewrites": "tma-cta"}
    assert found.values == values and found.variables == {"TRITONHOOK_OUT": out, "TRITONHOOK_PTXAS": "13.5.37"}
    path = project('policy = "a.toml"', 'max_registers = { "gemm*" = 1, k = 2 }')
    found = read_project(folder / "below" / "deeper")
    policy = str(folder / "a.toml")
    assert found == Project(path, policy=policy, max_registers={"gemm*": 1, "k": 2})
    assert (found.values, found.variables) == ({"policy": policy}, {})
    (folder / "below").mkdir()
    (folder / "below" / "pyproject.toml").write_text("[tool.other]\n# tritonhook\n")
    assert read_project(folder / "below") == found, "the first file that has the table"
    project("", table="[tool.other]")
    assert read_project(folder) == Project() and Project().values == Project().variables == {}


def test_a_lock_is_the_projects_else_the_usual_one(project) -> None:
    folder = project('lock = "a.lock"').parent
    assert lock_path(folder) == folder / "a.lock"
    project()
    assert lock_path(folder) == Path("tritonhook.lock")


def test_variables_are_set_where_they_are_not_for_a_while(monkeypatch) -> None:
    monkeypatch.delenv("TRITONHOOK_OUT", raising=False)
    monkeypatch.setenv("TRITONHOOK_PTXAS", "mine")
    with pytest.raises(KeyError), Project(out="out", ptxas="13.5.37").as_environment():
        assert (os.environ["TRITONHOOK_OUT"], os.environ["TRITONHOOK_PTXAS"]) == ("out", "mine")
        raise KeyError
    assert "TRITONHOOK_OUT" not in os.environ and os.environ["TRITONHOOK_PTXAS"] == "mine"
    with Project(out="out").as_environment():
        del os.environ["TRITONHOOK_OUT"]  # by the program


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('oht = "x"', "[tool.tritonhook]: no such setting: oht; did you mean out?"),
        *(
            (f"{key} = {value}", f"{key} = ")
            for key in ("out", "only", "ptxas", "policy", "lock")
            for value in ('""', "5")
        ),
        ('rewrites = "tma-cta"', "rewrites = 'tma-cta': give a list"),
        ('rewrites = ["nothing"]', "rewrites = ['nothing']: give a list of tma-cta, mma-throughput"),
        *(
            (f"max_registers = {value}", "max_registers = ")
            for value in ("0", "true", '"a"', "{ a = 0 }", "{ a = 1.5 }")
        ),
        ('allow_spills = "gemm*"', "allow_spills = 'gemm*': give a list"),
        ("allow_spills = [5]", "allow_spills = [5]: give a list"),
        ('ptxas = "/usr/bin/ptxas"', "ptxas = '/usr/bin/ptxas': give a version"),
        ('policy = "p"\nptxas = "13.5.37"', "the policy chooses ptxas and rewrites"),
        ('policy = "p"\nrewrites = ["tma-cta"]', "the policy chooses ptxas and rewrites"),
        ("out = ", "no TOML that can be read: "),
    ],
)
def test_what_is_wrong_is_named_with_its_file(project, line, why) -> None:
    path = project(line)
    with pytest.raises(UsageError, match=re.escape(f"{path}: ") + ".*" + re.escape(why)):
        read_project(path.parent)


def test_a_table_that_is_none_is_named(project) -> None:
    for line, why in (
        ("tritonhook = 5", "tool.tritonhook is not a table"),
        ("tool = 5 # tritonhook", "tool is not a table"),
    ):
        path = project(line, table="" if line.startswith("tool") else "[tool]")
        with pytest.raises(UsageError, match=re.escape(f"{path}: {why}")):
            read_project(path.parent)
    assert read_project(project("out = ", table="[tool.other]").parent) == Project(), "another tool's file"
    path.unlink()
    path.mkdir()
    assert read_project(path.parent) == Project(), "a folder of that name is no file"
