"""One session's part in a compile: its stages, with stand-ins for Triton's and for the session."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

from triton.runtime.errors import PTXASError

from tritonhook.capture.chosen_ptxas import Assembling
from tritonhook.capture.model import META_LEVER, META_REWRITES, Assembler
from tritonhook.capture.observers import Rewritten
from tritonhook.capture.triton import stages as module
from tritonhook.capture.triton.metadata import META_FROM, META_NOTE, META_PTXAS
from tritonhook.capture.triton.muting import muted_threads
from tritonhook.capture.triton.stages import Step
from tritonhook.errors import PtxError, ToolError

OWN = Assembler("/ptxas", "12.8", ("-v",))
NEW = Rewritten("new ptx", "add", "b_add")


class Session:
    """Gives one answer to each question, and notes what it is asked and told."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        self.told: list[Any] = []
        self.crash_fails = False

    def rewrite(self, *given: Any) -> Any:
        self.asked.append(given)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append(("contained", doing, error))

    def note(self, text: str) -> None:
        self.told.append(text)

    def keep_crash(self, *given: Any) -> None:
        if self.crash_fails:
            raise OSError("no room")
        self.told.append(("crash", *given))


class Tritons:
    """Triton's stages ptx and cubin. fails: the error of the cubin stage for the rewritten PTX."""

    def __init__(self, fails: Exception | None = None) -> None:
        self.fails = fails
        self.calls: list[Any] = []

    def ptx(self, source: Any, metadata: dict[str, Any]) -> str:
        metadata["by ptx"] = True
        return f"ptx of {source}"

    def cubin(self, source: str, metadata: dict[str, Any]) -> bytearray:
        self.calls.append((source, muted_threads.is_muted))
        metadata["by cubin"] = source
        if self.fails is not None and source == NEW.text:
            raise self.fails
        return bytearray(f"cubin of {source}".encode())


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Make a step for a session with this answer, around Triton's stages; returns the step and the stages."""
    monkeypatch.setattr(module, "assembler_of", lambda arch, options: replace(OWN, arguments=("-v", str(arch))))
    backend, options = SimpleNamespace(target=SimpleNamespace(arch=90)), SimpleNamespace(num_warps=4)
    settings: Any = SimpleNamespace(key="the key")

    def make(session: Any, tritons: Any) -> tuple[Step, Any]:
        made = Step(session, settings, backend, options)
        assert (made.key, made.is_sure) == ("the key", True)
        stages = {"ttir": tritons.ptx, "ptx": tritons.ptx, "cubin": tritons.cubin}
        made.wrap(stages)
        return made, stages

    return make


def test_a_rewritten_kernel_is_assembled_with_its_ptx(step) -> None:
    for rewritten, more in (
        (NEW, {META_FROM: "add"}),
        (replace(NEW, new="add"), {}),
        (replace(NEW, lever="O1", rewrites="tma-cta"), {META_FROM: "add", META_LEVER: "O1", META_REWRITES: "tma-cta"}),
    ):
        session, tritons = Session(rewritten), Tritons()
        made, stages = step(session, tritons)
        metadata = {"name": "add", META_FROM: "outer"} if rewritten is NEW else {"name": "add"}
        outer = metadata.get(META_FROM)
        assert stages["ptx"]("llir", metadata) == "new ptx"
        assert session.asked == [("ptx of llir", outer, "12.8", made._settings)] and session.told == []
        assert metadata == {"name": rewritten.new, "by ptx": True, "by cubin": "new ptx", **more}
        assert tritons.calls == [("new ptx", True)], "Triton would print the PTX if it fails"
        cubin = stages["cubin"]("new ptx", metadata)
        assert cubin == b"cubin of new ptx" and isinstance(cubin, bytes)
        assert len(tritons.calls) == 1 and made.is_sure


def test_a_kernel_that_stays_is_tritons(step) -> None:
    session, tritons = Session(None), Tritons()
    _, stages = step(session, tritons)
    metadata = {"name": "add"}
    assert stages["ptx"]("llir", metadata) == "ptx of llir"
    assert stages["cubin"]("ptx of llir", metadata) == b"cubin of ptx of llir"
    assert metadata == {"name": "add", "by ptx": True, "by cubin": "ptx of llir"} and session.told == []


@pytest.mark.parametrize(("error", "is_sure"), [(PtxError("no"), True), (OSError("no"), False)])
def test_an_error_leaves_the_kernel_and_may_be_by_chance(step, error, is_sure) -> None:
    session = Session(error)
    made, stages = step(session, Tritons())
    metadata = {"name": "add"}
    assert stages["ptx"]("llir", metadata) == "ptx of llir"
    assert metadata == {"name": "add", "by ptx": True, META_NOTE: "not rewritten: no"}
    assert session.told == [("contained", "add stays as it is", error)] and made.is_sure is is_sure


def test_ptx_that_is_replaced_afterwards_counts(step) -> None:
    session, tritons = Session(replace(NEW, lever="O1", rewrites="x")), Tritons()
    _, stages = step(session, tritons)
    metadata = {"name": "add"}
    stages["ptx"]("llir", metadata)
    theirs = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry theirs()\n{\nret;\n}\n"
    assert stages["cubin"](theirs, metadata) == f"cubin of {theirs}".encode()
    assert metadata == {"name": "theirs", "by ptx": True, "by cubin": theirs}


@pytest.mark.parametrize("crash_fails", [False, True])
@pytest.mark.parametrize("error", [PTXASError("oh"), ToolError("oh")])
@pytest.mark.parametrize(
    ("rewritten", "why"),
    [
        (NEW, "not renamed: ptxas failed under the name b_add"),
        (replace(NEW, new="add", lever="O1"), "not rewritten: ptxas failed on the rewritten PTX"),
    ],
)
def test_where_ptxas_fails_the_kernel_is_plain(step, rewritten, why, error, crash_fails) -> None:
    session, tritons = Session(rewritten), Tritons(error)
    session.crash_fails = crash_fails
    made, stages = step(session, tritons)
    metadata = {"name": "add"}
    assert stages["ptx"]("llir", metadata) == "ptx of llir"
    assert metadata == {"name": "add", "by ptx": True, META_NOTE: why}, "nothing of the trial"
    crash, *notes = session.told
    if crash_fails:
        assert crash[:1] == ("contained",) and rewritten.new in crash[1] and isinstance(crash[2], OSError)
    else:
        own = replace(OWN, arguments=("-v", "90"))
        assert crash == ("crash", rewritten.new, "new ptx", own, str(error))
    assert notes == ([] if rewritten.lever is None else [f"add: {why}"]) and made.is_sure
    assert stages["cubin"]("ptx of llir", metadata) == b"cubin of ptx of llir"


def test_another_error_of_the_cubin_stage_is_tritons(step) -> None:
    _, stages = step(Session(NEW), Tritons(ValueError("theirs")))
    with pytest.raises(ValueError, match="theirs"):
        stages["ptx"]("llir", {"name": "add"})
    assert not muted_threads.is_muted


@pytest.mark.parametrize("fails", [False, True])
def test_another_ptxas_assembles_what_it_is_given(step, monkeypatch, fails) -> None:
    asked: list[Any] = []

    def assemble(assembler: Assembler, text: str) -> bytes:
        asked.append((assembler, text))
        if fails:
            raise ToolError("oh")
        return b"by another"

    monkeypatch.setattr(module, "assemble_by", assemble)
    plain = Rewritten("ptx of llir", "add", "add", Assembling("/other", "13.4", "sha", ("-O1",)))
    session, tritons = Session(plain), Tritons()
    _, stages = step(session, tritons)
    metadata = {"name": "add"}
    assert stages["ptx"]("llir", metadata) == "ptx of llir"
    other = Assembler("/other", "13.4", ("-v", "90", "-O1"))
    assert asked == [(other, "ptx of llir")]
    if fails:
        assert metadata[META_NOTE] == "ptxas 13.4 failed; assembled by Triton's own" and META_PTXAS not in metadata
        assert session.told == [("crash", "add", "ptx of llir", other, "oh")]
        assert stages["cubin"]("ptx of llir", metadata) == b"cubin of ptx of llir"
        return
    assert metadata[META_PTXAS] == ["/other", "13.4", ["-v", "90", "-O1"]] and META_NOTE not in metadata
    assert stages["cubin"]("ptx of llir", metadata) == b"by another" and tritons.calls == []


@pytest.mark.parametrize(("certified", "applied"), [(None, True), ("the code", True), ("another", False)])
def test_a_policys_code_is_the_one_that_was_timed(step, monkeypatch, certified, applied) -> None:
    asked: list[Any] = []

    def summarise(cubin: bytes, names: Any) -> Any:
        return SimpleNamespace(code_hash=lambda name: asked.append((cubin, name)) or "the code")  # type: ignore[func-returns-value]

    monkeypatch.setattr("tritonhook.cubin.summary.summarise_image", summarise)
    session = Session(replace(NEW, code=certified, lever="O1"))
    _, stages = step(session, Tritons())
    metadata = {"name": "add"}
    assert stages["ptx"]("llir", metadata) == ("new ptx" if applied else "ptx of llir")
    assert asked == ([] if certified is None else [(b"cubin of new ptx", "b_add")])
    note = metadata.get(META_NOTE)
    assert (note is None) is applied and (applied or ("the code" in str(note) and "another" in str(note)))
    assert session.told == ([] if applied else [f"add: {note}"])
