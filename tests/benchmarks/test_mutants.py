"""Mutants are drawn from all packages alike, and counted by package."""

from __future__ import annotations

from benchmarks.mutants import by_package, counted, drawn, package_of

MODULES = {
    "tritonhook/ptx/module.py": {f"ptx.module.{n}": None for n in range(90)},
    "tritonhook/ptx/tokens.py": {"ptx.tokens.0": 1, "ptx.tokens.1": None},
    "tritonhook/verify/differential.py": {f"verify.differential.{n}": None for n in range(10)},
    "tritonhook/rename.py": {"rename.0": 0, "rename.1": None},
}


def test_every_package_gives_as_many_until_it_has_no_more() -> None:
    names = drawn(MODULES, 15, "a")
    assert len(names) == len(set(names)) == 15
    counts = {part: sum(name.startswith(part) for name in names) for part in ("ptx", "verify", "rename")}
    assert counts == {"ptx": 7, "verify": 7, "rename": 1}
    assert "ptx.tokens.0" not in drawn(MODULES, 1000, "a"), "it was tried"
    assert len(drawn(MODULES, 1000, "a")) == 102


def test_another_day_draws_others() -> None:
    assert drawn(MODULES, 20, "a") == drawn(MODULES, 20, "a") != drawn(MODULES, 20, "b")


def test_packages_are_sums_of_their_modules() -> None:
    rows = by_package({module: counted(found) for module, found in MODULES.items()})
    assert list(rows) == ["tritonhook", "tritonhook/ptx", "tritonhook/verify"]
    assert rows["tritonhook/ptx"] == {"mutants": 92, "tried": 1, "killed": 1, "survived": 0, "untested": 0}
    assert (rows["tritonhook"]["tried"], rows["tritonhook"]["killed"]) == (1, 0)
    assert package_of("tritonhook/capture/store/reader.py") == "tritonhook/capture"
