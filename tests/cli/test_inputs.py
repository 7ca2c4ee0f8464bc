"""What the command line names: files, kernels, captures by path, name or id; the ptxas and its options for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from repository import GOLDEN
from stored_kernels import keep_module, made

from tritonhook.capture.store import CaptureFolder, CaptureWriter
from tritonhook.cli import _inputs, main
from tritonhook.cli._inputs import (
    _places,
    find_capture,
    load_pair,
)
from tritonhook.errors import PtxError, UsageError

CUBIN = GOLDEN / "sm_90a.exp.plain.cubin"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRITONHOOK_OUT", raising=False)
    return tmp_path


@pytest.fixture
def folder(here: Path) -> CaptureFolder:
    """Captures of a module's three kernels, in the folder that `run` writes to."""
    return keep_module(here / _inputs.default_out(), here)


# --- files ----------------------------------------------------------------------------------------


def test_a_pair_is_one_kernel_of_each_side(plain: Path, two_entries: Path, here: Path) -> None:
    one, two = str(plain), str(two_entries)

    def entries(a: str, b: str, entry: str | None) -> list[tuple[str, str]]:
        return [(given.label, given.entry) for given in load_pair(a, b, entry)]

    assert entries(one, str(CUBIN), None) == [(one, "work"), (str(CUBIN), "cutlasz_k")]
    assert entries(two, two, "first:second") == [(two, "first"), (two, "second")]
    assert entries(one, two, "second") == [(one, "work"), (two, "second")]
    renamed = here / "renamed.ptx"
    renamed.write_text(two_entries.read_text().replace("first", "cutlass_first"))
    for name in ("first", "cutlass_first"):
        assert entries(two, str(renamed), name) == [(two, "first"), (str(renamed), "cutlass_first")]
    for entry, wrong in (("first:absent", "second"), ("absent:first", "second")):
        with pytest.raises((UsageError, PtxError), match="absent"):
            load_pair(two, two, entry)
        assert wrong in two_entries.read_text()
    with pytest.raises(UsageError, match="--entry absent: no such kernel; the kernels are: work$"):
        load_pair(one, one, "absent")
    with pytest.raises(UsageError, match="--entry b: no such kernel; the kernels are: work$"):
        load_pair(one, one, "work:b")


# --- ptxas ----------------------------------------------------------------------------------------


# --- captures -------------------------------------------------------------------------------------


def test_a_kernel_is_named_by_path_id_or_name(folder: CaptureFolder, here: Path, capsys) -> None:
    record = next(it for it in folder.records if folder.capture(it).kernel == "foo_bar")
    kernels = folder.path / "kernels"
    out = _inputs.default_out()
    for text in (folder.ids[record], f"{out}/{folder.ids[record]}", "foo_bar", f"{out}/foo_bar", record):
        assert Path(str(_places(text))).resolve() == (kernels / record).resolve(), text
    assert _places(("foo_bar", "a.ptx", "m:f", "d/absent")) == (_places("foo_bar"), "a.ptx", "m:f", "d/absent")
    assert _places(None) is None and _places(out) == out
    for text, said in (
        ("abc", "abc: no such file or folder, and too short for an id: give"),
        ("ffffff", f"ffffff: no such file or folder, and no kernel in {out} has an id that begins so; the latest run"),
        ("d/ffffff", "d/ffffff: no such file or folder; as an id: d"),
        ("absent", f"absent: no such file or folder, and no such kernel in {out}; "),
        ("foo[BM=64]", "foo[BM=64]: no such kernel; there are:\n  "),
    ):
        with pytest.raises(UsageError) as error:
            _places(text)
        assert str(error.value).startswith(said), str(error.value)
        if text in ("ffffff", "absent"):
            assert all(f"{id}  {folder.capture(it).kernel}" in str(error.value) for it, id in folder.ids.items())
    assert _places(f"{out}@1") == f"{out}@1"
    assert main(["lab", "probe"]) == 2
    assert all(
        f"{id}  {folder.capture(it).kernel}" in said
        for said in [capsys.readouterr().err]
        for it, id in folder.ids.items()
    )
    assert str(error.value).count(f"{folder.ids[next(iter(folder.records))]}  ") <= 1


def test_a_launch_is_named_by_its_id(folder: CaptureFolder) -> None:
    launches = {}
    for record, key in zip(folder.records, ("abcdef012345", "abcdef999999", "123456abcdef"), strict=True):
        launches[key] = folder.path / "kernels" / record / "launches" / f"{key}.json"
        launches[key].parent.mkdir()
        launches[key].write_text("{}")
    out, given = _inputs.default_out(), _inputs._launch_place
    for text in ("123456", f"{out}/123456", "123456abcdef"):
        assert Path(str(given(text))).resolve() == launches["123456abcdef"].resolve(), text
    assert given("foo_bar") == _places("foo_bar") and given(None) is None
    with pytest.raises(UsageError, match="abcdef: 2 launches have ids that begin so: abcdef.*, abcdef"):
        given("abcdef")
    with pytest.raises(UsageError, match="ffffff: no such file or folder"):
        given("ffffff")


def test_one_kernel_of_several_of_a_name_is_told_by_its_settings(here: Path) -> None:
    out = here / _inputs.default_out()
    writer = CaptureWriter(out)
    for warps in (4, 8):
        capture, files = made(here, "mul", hash=f"{warps}" * 64)
        writer.add_files(replace(capture, options={"num_warps": warps}), files)
    writer.close()
    ids = CaptureFolder.open(out).ids
    eight = next(record for record in ids if CaptureFolder.open(out).capture(record).options["num_warps"] == 8)
    assert Path(str(_places("mul[num_warps=8]"))).name == eight
    with pytest.raises(UsageError, match="^mul: 2 kernels fit; give more of one, or its id:\n") as error:
        _places("mul")
    assert all(f"{id}  mul" in str(error.value) for id in ids.values())
    assert find_capture(out, "mul[num_warps=8]").options == {"num_warps": 8}
    with pytest.raises(UsageError, match=f"^{out}: 2 captures of mul; name one:\n") as error:
        find_capture(out, "mul")
    assert all(str(out / "kernels" / record) in str(error.value) for record in ids)
