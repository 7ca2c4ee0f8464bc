"""One kernel under two names: the control, crashes, and a ptxas that does not answer twice the same."""

from pathlib import Path

import pytest

from tritonhook.ab import Build, compare_names, settle
from tritonhook.errors import UsageError
from tritonhook.microkernel import condition
from tritonhook.ptx import Ptx
from tritonhook.rename import Rename
from tritonhook.toolchain import AssembleError, Tool, Toolchain, find_nvdisasm, find_ptxas

TARGET = {"target": "sm_90a", "version": "8.0"}


@pytest.fixture
def ptx() -> Ptx:
    return condition("fma").ptx("work", **TARGET)


def fake_ptxas(folder: Path, body: str) -> Toolchain:
    """A ptxas made of shell: $in is the module, $real the real one, "$@" the arguments."""
    path = folder / "ptxas"
    real = find_ptxas()
    path.write_text(
        "#!/bin/sh\n"
        f"real={real.path}\n"
        'for word in "$@"; do case "$word" in *.ptx) in="$word";; esac; done\n'
        f"{body}\n"
        'exec "$real" "$@"\n'
    )
    path.chmod(0o755)
    return Toolchain(Tool(path, real.version, "fake"), find_nvdisasm())


def test_a_crash_under_the_new_name_is_a_result(tmp_path: Path, ptx: Ptx) -> None:
    tools = fake_ptxas(tmp_path, 'grep -q cutlass_ "$in" && kill -SEGV $$')
    comparison = compare_names(ptx, Rename(prefix="cutlass_"), tools)
    ((kernel, crash),) = comparison.crashes
    assert (kernel, crash.signal) == ("cutlass_work", "SIGSEGV")
    assert comparison.diff is None
    assert comparison.control_is_neutral is True


def test_a_crash_under_its_own_name_is_an_error(tmp_path: Path, ptx: Ptx) -> None:
    tools = fake_ptxas(tmp_path, "kill -SEGV $$")
    with pytest.raises(AssembleError, match="died with SIGSEGV") as caught:
        compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert caught.value.crash.signal == "SIGSEGV"
    assert "repeat with" in str(caught.value)


def test_a_name_that_stays_is_an_error(ptx: Ptx) -> None:
    tools = Toolchain(find_ptxas(), find_nvdisasm())
    with pytest.raises(UsageError, match="leaves 'work' as it is"):
        compare_names(ptx, Rename(strip="cutlass"), tools)


def unsteady(folder: Path) -> Toolchain:
    """A ptxas that gives every third run another code, that of -O1."""
    count = folder / "count"
    count.write_text("0")
    return fake_ptxas(
        folder,
        f'n=$(cat {count}); echo $((n + 1)) > {count}\nif [ $((n % 3)) = 1 ]; then exec "$real" -O1 "$@"; fi',
    )


def test_two_draws_of_one_code_are_settled(tmp_path: Path, ptx: Ptx) -> None:
    tools = unsteady(tmp_path)
    other = ptx.rename_entries({"work": "play"})
    builds = [Build(p.entries[0], p, tools.assemble(p)) for p in (ptx, other)]
    assert builds[0].code != builds[1].code  # one -O3, one -O1: the premise
    settled = settle(builds, tools, ())
    assert settled[0].code == settled[1].code
    assert [b.kernel for b in settled] == ["work", "play"]


def test_codes_that_really_differ_stay_apart(tmp_path: Path, ptx: Ptx) -> None:
    tools = fake_ptxas(tmp_path, 'grep -q play "$in" && exec "$real" -O1 "$@"')
    other = ptx.rename_entries({"work": "play"})
    builds = [Build(p.entries[0], p, tools.assemble(p)) for p in (ptx, other)]
    assert settle(builds, tools, (), runs=3) == builds


def test_a_control_that_is_not_neutral_is_said(tmp_path: Path, ptx: Ptx) -> None:
    # Given a ptxas that gives every name but the kernel's own another code
    tools = fake_ptxas(tmp_path, 'grep -q "entry work" "$in" || exec "$real" -O1 "$@"')
    comparison = compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert comparison.control_is_neutral is False
    assert comparison.control_diff is not None
    assert not comparison.control_diff.identical_code


def test_nothing_is_left_in_the_temporary_folder(tmp_path: Path, ptx: Ptx, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tools = Toolchain(find_ptxas(), find_nvdisasm())
    compare_names(ptx, Rename(prefix="cutlass_"), tools)
    assert list(tmp_path.iterdir()) == []
