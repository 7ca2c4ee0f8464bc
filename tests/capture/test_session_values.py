"""What a session keeps, says and decides, without a compiler: its writer takes notes."""

from __future__ import annotations

import contextvars
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonhook.capture import session as module
from tritonhook.capture.dry_run.gpu import DryRun, Notes
from tritonhook.capture.model import Assembler, Capture, Stage
from tritonhook.capture.observers import Rewritten
from tritonhook.capture.session import Session, summary_line
from tritonhook.capture.settings import Settings, make_settings
from tritonhook.capture.triton.metadata import META_FROM, META_KEYS
from tritonhook.capture.triton.rewriting import digest
from tritonhook.errors import CaptureError, PtxError
from tritonhook.ptx.module import Ptx
from tritonhook.rename import Rename, Rewrites

A = Rename(prefix="a_")


def text_of(name: str) -> str:
    return f".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry {name}()\n{{\nret;\n}}\n"


class Writer:
    """As a CaptureWriter: notes each call, and fails if it is to."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any) -> Any:
            if self.fails:
                raise OSError(28, "No space left on device")
            self.calls.append((name, *given))
            return Path("crashes") if name == "add_crash" else f"record of {getattr(given[0], 'kernel', given)}"

        return call


def new(out: Path, settings: Settings | None = None, **given: Any) -> Any:
    """A session of no front end whose writer takes notes."""
    session: Any = Session(settings or make_settings(out, **given), ())
    session._writer = Writer()
    return session


@pytest.fixture
def session(out: Path) -> Any:
    """A session that has met the kernels h1 to h4 of Triton's hashes; their records are r1 to r4."""
    found = new(out)
    found._records = {f"h{n}": f"r{n}" for n in range(1, 5)}
    return found


# --- what is said --------------------------------------------------------------------------------


def test_a_summary_counts_kernels_and_has_the_notes(out: Path) -> None:
    assert summary_line(1, 0, out) == f"tritonhook: 1 kernel seen, 0 from cache; captures in {out}"
    dry = summary_line(2, 1, out, DryRun(90))
    assert (
        dry == f"tritonhook: dry run for sm_90a, nothing was launched: 2 kernels seen, 1 from cache; captures in {out}"
    )
    session = new(out)
    first, *rest = session.summary.splitlines()
    assert first == summary_line(0, 0, out) and len(rest) == 1 and rest[0].startswith("  ")
    session.seen, session.binary_only = {"a": True, "b": False}, {"a"}
    for text in ("a note", "another", "a note"):
        session.note(text)
    first, binaries, *notes = session.summary.splitlines()
    assert first == summary_line(2, 1, out) and binaries.startswith("  1 from a binary-only cache")
    assert notes == ["  a note", "  another"]
    assert (session.records, session.from_cache, session.out) == (("a", "b"), 1, out)


def test_an_error_of_each_kind_is_said_once(session, capsys) -> None:
    full = [OSError(28, "No space left on device", path) for path in ("a", "b")]
    told = [CaptureError("why"), ValueError("one"), ValueError("one"), ValueError("two"), KeyError("one"), *full]
    for error in told:
        session.contain("doing", error)
    session.contain("another", CaptureError("why"))
    said = ["doing: why", "doing: ValueError: one", "doing: ValueError: two", "doing: KeyError: 'one'"]
    said += [f"doing: OSError: {full[0]}", "another: why"]
    assert session.notes == said
    assert capsys.readouterr().err.splitlines() == [f"tritonhook: {text}" for text in said]


def test_a_session_takes_over_what_an_earlier_one_saw(out: Path) -> None:
    names = {"seen": {"r": True}, "met": ["r", "r"], "binary_only": {"r"}, "crashes": [out], "notes": ["n"]}
    earlier, later = new(out), new(out)
    vars(earlier).update(names)
    later.carry_over(earlier)
    for name, value in names.items():
        kept = getattr(later, name)
        assert kept == value and kept is not value


def test_kernels_that_were_missed_are_named_in_one_note_for_each_reason(session) -> None:
    session.note("first")
    for number in range(6):
        session._note_missed(f"k{number}", "why")
        session._note_missed("k0", "why")
    session._note_missed("x", "another")
    missed = "6 kernels not rewritten (k0, k1, k2, k3, k4, ...): why"
    assert session.notes == ["first", missed, "1 kernel not rewritten (x): another"]
    policy: Any = SimpleNamespace(path="p.toml")
    for name in ("k_1", "k_2", "other"):
        session._note_missed(name, module._other_ptx(policy))
    session._match(policy, "k")  # k_1 and k_2 are specialisations of a kernel that the policy knows
    assert session._matched == {"k"}
    assert session.notes[3:] == [f"1 kernel not rewritten (other): {module._other_ptx(policy)}"]
    session._match(policy, "other")
    assert session.notes[3:] == []


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dry", [False, True])
def test_the_end_writes_launches_notes_and_what_was_not_recorded(out, monkeypatch, capsys, dry) -> None:
    notes = Notes()
    notes.add("of the dry run")
    monkeypatch.setattr(module, "dry_run_notes", notes)
    session = new(out, dry_run=DryRun(90) if dry else None)
    session.count_launch("r1", "key")
    session.count_launch("r1", "key")
    session.miss_launch("r2", "why")
    session.uninstall()
    kept = ["a launch was not recorded: why", *(["of the dry run"] if dry else [])]
    counts = ("add_launch_counts", {("r1", "key"): 2})
    assert session._writer.calls == [counts, ("close", kept, {"r2": kept[0]})]
    other = new(out)
    other.uninstall()
    assert other._writer.calls == [("close", [], {})]
    other._writer.fails = True
    other.uninstall()
    assert "No space left" in capsys.readouterr().err


# --- what is kept --------------------------------------------------------------------------------


def test_a_launch_is_kept_the_first_time_and_counted_each_time(session) -> None:
    for _ in range(3):
        session.keep_launch("r", "key", "launch", lambda: {"a": b"1"})
    session.count_launch("r", "another")
    assert session._writer.calls == [("add_launch", "r", "launch", {"a": b"1"})]
    assert session._launched == {("r", "key"): 3, ("r", "another"): 1}


def test_choices_of_autotuners_are_kept_by_record(session, capsys) -> None:
    session.tuned("t1", "Triton", "h2", ["h1", "h2", "h2", "unknown"])
    session.tuned("t2", "Triton", "h3", ["h3", "h2"])
    session.tuned("t3", "Triton", "unknown", ["h4"])
    session.configured("f", ["k"], "h1", {"h1": "A", "h2": "B", "unknown": "C"}, "source", "Inductor")
    session.configured("f", ["k"], "h1", {})
    session.configured("f", ["k"], "unknown", {"h1": "A"})
    session.selected("mm", "sm_90a", ["k"], "triton_mm", ["a", "b"], None)
    assert session._writer.calls == [
        ("add_tuning", "t1", "Triton", "r2", ["r1", "r2"]),
        ("add_tuning", "t2", "Triton", "r3", ["r3", "r2"]),
        ("add_configurations", "f", ["k"], "r1", {"r1": "A", "r2": "B"}, "source", "Inductor"),
        ("add_configurations", "f", ["k"], "r1", {}, None, "Triton"),
        ("add_selection", "mm", "sm_90a", ["k"], "triton_mm", ["a", "b"], None),
    ]
    assert session.lost == {"r1"}
    session._writer.fails = True
    session.tuned("t1", "Triton", "h1", [])
    session.configured("f", ["k"], "h1", {})
    session.selected("mm", "sm_90a", ["k"], "triton_mm", [], None)
    assert capsys.readouterr().err.count("No space left on device") == len(session.notes) == 3


def test_a_dry_run_measures_nothing_and_says_so_of_each_kernel(out: Path) -> None:
    session = new(out, dry_run=DryRun(90))
    session._records = {"h": "r"}
    session.tuned("t", "Triton", "h", ["h"])
    session.selected("mm", "sm_90a", ["k"], "triton_mm", [], None)
    assert session._writer.calls == [] and session.lost == set()
    session.keep(Capture("k", "h", "sm_90a", {}, metadata={"a": 1}), {})
    ((_, kept, _),) = session._writer.calls
    assert kept.dry_run and kept.metadata["a"] == 1


def test_a_kernel_of_another_front_end_is_kept_under_hash_and_name(session) -> None:
    capture = Capture("k", "h", "sm_90a", {})
    files = {Stage.PTX: "path"}
    for hit in (None, True):
        assert session.keep(replace(capture, cache_hit=hit), files) == "record of k"
    assert session._writer.calls[0] == ("add_files", capture, files)
    assert (session.met, session.seen) == (["record of k"] * 2, {"record of k": False})
    assert session.record_of("h k") == "record of k" and session.record_of("h") is None
    (session.out / "kernels" / "r").mkdir(parents=True)
    assert not session.has_ptx("r")
    (session.out / "kernels" / "r" / "kernel.ptx").touch()
    assert session.has_ptx("r")


# --- rewriting -----------------------------------------------------------------------------------


def test_a_kernels_ptx_is_rewritten_or_left(session) -> None:
    settings = replace(session.settings, rewrites=Rewrites((A,)), only="^add")
    given = (text_of("add"), None, "12.8.93")
    expected = Rewritten(A.apply(Ptx(given[0])).text, "add", "a_add")
    assert session.rewrite(*given, settings) == expected
    assert session.rewrite(text_of("x_add"), "add", None, settings).own == "add"
    assert session.rewrite(given[0], "sub", None, settings) is None, "by the kernel's own name"
    assert session.rewrite(text_of("a_add"), "add", None, settings) is None, "nothing changes"
    assembling: Any = SimpleNamespace(version="12.0", readable=lambda ptx: Ptx(f"// read by 12.0\n{ptx.text}"))
    settings = replace(settings, rewrites=Rewrites(), assembling=assembling)
    expected = Rewritten(f"// read by 12.0\n{given[0]}", "add", "add", assembling)
    assert session.rewrite(*given, settings) == expected


def test_a_rewrite_has_remarks_a_name_and_a_version_of_ptxas_that_it_needs(session) -> None:
    def why_not(version: str) -> str | None:
        return None if version >= "13" else f"not with {version}"

    mark: Any = SimpleNamespace(
        key="mark", apply=lambda ptx: Ptx(f"// m\n{ptx.text}"), remarks=lambda ptx: ("said",), why_not=why_not
    )
    settings = replace(session.settings, rewrites=Rewrites((A, mark)))
    given = text_of("add"), None
    changed = session.rewrite(*given, "13.3", settings)
    assert (changed.new, changed.rewrites, session.notes) == ("a_add", "mark", ["said"])
    with pytest.raises(PtxError, match=r"not with 12\.8"):
        session.rewrite(*given, "12.8", settings)
    newer: Any = SimpleNamespace(version="13.4", readable=lambda ptx: ptx)
    assert session.rewrite(*given, "12.8", replace(settings, assembling=newer)).assembling is newer
    unknown: Any = SimpleNamespace(version=None, readable=lambda ptx: ptx)
    with pytest.raises(PtxError, match=r"not with 12\.8"):
        session.rewrite(*given, "12.8", replace(settings, assembling=unknown))


@pytest.mark.parametrize(
    ("name", "known", "noted"),
    [
        ("add", {}, True),
        ("add", {META_KEYS: ["another"]}, True),
        ("add", {META_KEYS: ["own"]}, False),
        ("sub", {}, False),  # not wanted
        ("x_add", {META_FROM: "add"}, True),
        ("a_add", {META_FROM: "sub"}, False),
        ("a_add", {}, False),  # nothing would change
        ("add", {"no ptx": 1}, True),
        ("a_add", {"no ptx": 1}, True),
        ("add", {"damaged": 1}, True),
    ],
)
def test_a_kernel_that_was_compiled_without_the_session_is_noted(out, tmp_path, name, known, noted) -> None:
    session = new(out, rename=A, only="add")
    path = tmp_path / "k.ptx"
    if "damaged" not in known:
        path.write_text(text_of(name))
    if META_KEYS in known:
        known = {META_KEYS: [key.replace("own", digest(session.settings.key)) for key in known[META_KEYS]]}
    group = {"k.cubin": "nowhere"} | ({} if "no ptx" in known else {"k.ptx": str(path)})
    session.check_rewritten({"name": name, **known}, group, "why")
    own = known.get(META_FROM, name)
    assert session.notes == ([f"1 kernel not rewritten ({own}): why"] if noted else [])
    plain = new(out)
    plain.check_rewritten({"name": name}, {}, "why")
    assert plain.notes == []


def test_a_ptxas_or_an_entry_of_the_policy_would_change_a_kernel(out, tmp_path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(text_of("x_add"))
    settings = Settings(out)
    assert module._would_change(str(path), "add", settings) is False
    assert module._would_change(str(path), "add", replace(settings, assembling=SimpleNamespace())) is True  # type: ignore[arg-type]
    for entry in (None, "an entry"):
        known = {(text_of("x_add"), "x_add", "add"): entry}
        policy: Any = SimpleNamespace(entry_for=lambda *given, known=known: known[given])
        assert module._would_change(str(path), "add", replace(settings, policy=policy)) is (entry is not None)


# --- what cannot be compiled ---------------------------------------------------------------------


def test_a_rejected_kernel_is_kept_with_what_is_known_of_it(out, monkeypatch) -> None:
    found = Capture("add", "h", "sm_90a", {}, Assembler(None, "12.8", ("-v",)), {"num_warps": 4})
    asked: list[Any] = []
    monkeypatch.setattr(module, "capture_of", lambda *given: asked.append(given) or found)
    monkeypatch.setattr(module, "triton_version", lambda: "3.6.0")
    session = new(out, only="add")
    session.keep_rejected("llir", "ptx", {"name": "other"}, {}, ValueError())
    assert session._writer.calls == asked == []
    metadata, files = {META_FROM: "own"}, {"source": "/x/add.source"}
    for error, log in ((ValueError("the log"), "the log"), (ValueError(), "ValueError")):
        session.keep_rejected("llir", "ptx", metadata, files, error)
        assert asked.pop() == ("add", metadata | {"name": "add"}, {}, False, "own")
        details = {"stage": "llir", "arch": "sm_90a", "log": log, "error": "ValueError", "options": {"num_warps": 4}}
        details |= {"triton": "3.6.0", "ptxas": "12.8", "arguments": ("-v",)}
        assert session._writer.calls.pop() == ("add_crash", "add", "ptx", details, files)


@pytest.mark.parametrize(
    ("metadata", "files", "name"),
    [
        ({"name": "add"}, {"source": "/x/other.source"}, "add"),
        ({}, {"source": "/x/add.source", "ttir": "/x/other.ttir"}, "add"),
        ({}, {"ttir": "/x/add.ttir"}, "add"),
        ({}, {}, "kernel"),
    ],
)
def test_a_rejected_kernel_has_the_name_of_its_files(metadata, files, name) -> None:
    assert module._name_of_rejected(metadata, files) == name


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_crash_of_ptxas_is_kept_with_its_signal(session, monkeypatch, known, fails) -> None:
    from tritonhook.ptxas import toolchain

    class Crash(SimpleNamespace):
        pass

    asked: list[Any] = []
    ended = {"signal": "SIGSEGV", "returncode": -11, "command": "ptxas -v", "stderr": "oh"}
    result = Crash(**ended, summary="ptxas was ended") if fails else SimpleNamespace()
    monkeypatch.setattr(toolchain, "Crash", Crash)
    monkeypatch.setattr(toolchain, "assemble", lambda *given: asked.append(given) or result)
    assembler = Assembler("/ptxas", "12.8" if known else None, ("-v",) if known else None)
    session.keep_crash("add", text_of("add"), assembler, "what Triton said")
    details: dict[str, Any] = {"triton_message": "what Triton said"}
    if known:
        ((tool, ptx, arguments),) = asked
        assert (tool.path, tool.version, ptx.text, arguments) == (Path("/ptxas"), "12.8", text_of("add"), ("-v",))
        details |= {**ended, "ptxas": "12.8"} if fails else {}
    else:
        assert asked == []
    assert session._writer.calls == [("add_crash", "add", text_of("add"), details)]
    assert session.crashes == [Path("crashes")]
    what = (
        "ptxas was ended on add" if known and fails else f"ptxas {'12.8' if known else '(unknown version)'} failed on"
    )
    assert session.notes[0].startswith(what) and session.notes[0].endswith("the PTX is in crashes")


# --- other threads and torch.compile -------------------------------------------------------------


def test_async_compiles_of_this_thread_are_waited_for(monkeypatch) -> None:
    mode = contextvars.ContextVar[Any]("mode", default=None)
    monkeypatch.setitem(sys.modules, "triton.runtime._async_compile", SimpleNamespace(active_mode=mode))  # type: ignore[arg-type]
    module.finish_async_compiles()
    waited: list[Any] = []
    monkeypatch.setattr("concurrent.futures.wait", waited.append)
    futures = [Future[int](), Future[int]()]
    mode.set(SimpleNamespace(raw_futures=iter(futures)))
    module.finish_async_compiles()
    assert waited == [futures]
    monkeypatch.delitem(sys.modules, "triton.runtime._async_compile")
    module.finish_async_compiles()
    assert len(waited) == 1


def test_a_compile_that_inductor_asks_for_is_known_by_its_frames(monkeypatch) -> None:
    code = "def ask(f):\n    return f()\n"
    torch: dict[str, Any] = {"__name__": "torch._inductor.runtime"}
    other: dict[str, Any] = {"__name__": "torch._inductors"}
    for one in (torch, other):
        exec(code, one)
    asked = module._compiled_by_inductor
    monkeypatch.setitem(sys.modules, "torch._inductor", SimpleNamespace())  # type: ignore[arg-type]
    assert (asked(), torch["ask"](asked), torch["ask"](lambda: asked()), other["ask"](asked)) == (
        False,
        True,
        True,
        False,
    )
    monkeypatch.delitem(sys.modules, "torch._inductor")
    assert torch["ask"](asked) is False


@pytest.mark.parametrize("may_rename", [None, "no rename"])
@pytest.mark.parametrize("may_rewrite", [None, "no rewrite"])
def test_torch_compiles_kernels_get_what_its_caches_can_tell_apart(out, monkeypatch, may_rename, may_rewrite) -> None:
    monkeypatch.setattr(module.inductor, "may_rename", lambda: may_rename)
    monkeypatch.setattr(module.inductor, "may_rewrite", lambda: may_rewrite)
    by_inductor: list[bool] = [False]
    monkeypatch.setattr(module, "_compiled_by_inductor", lambda: by_inductor[0])
    mark: Any = SimpleNamespace(key="mark", apply=lambda ptx: ptx)
    session = new(out, rename=A, rewrites=[mark], options="-O1", only="add")
    assert session.settings_now("add") is session.settings
    by_inductor[0] = True
    assert new(out).settings_now("add").key == ""
    now = session.settings_now("add")
    expected = session.settings if may_rename is None else session.settings.without_renames
    if may_rewrite is not None:
        expected = replace(expected, rewrites=Rewrites(), assembling=None)
    assert now == expected
    told = ["kernels of torch.compile keep their own names: no rename"] if may_rename else []
    assert session.notes == told
    session.notes.clear()
    session.settings_now("sub")  # not one of the session's
    assert session.notes == []
    without = new(out, rewrites=[mark])
    assert without.settings_now("add").rewrites == (Rewrites() if may_rewrite else Rewrites((mark,)))
    assert without.notes == (["kernels of torch.compile stay as they are: no rewrite"] if may_rewrite else [])
