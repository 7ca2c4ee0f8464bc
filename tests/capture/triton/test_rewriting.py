"""Renaming in Triton's pipeline: the name, its origin, other ways to replace PTX, and a ptxas that fails."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("triton", minversion="3.6")

import triton
from triton.runtime.errors import PTXASError
from triton_kernels import add_kernel, compile_kernel, cutlass_copy_kernel, multiply_kernel
from triton_sessions import CRASH_ON_CUTLASS, assemble_again, entries, wrapper_around_ptxas

import tritonhook
from tritonhook.capture.triton import rewriting as rewriting_module
from tritonhook.capture.triton.metadata import META_KEYS, META_NOTE
from tritonhook.capture.triton.rewriting import FAILED, LATE, REPLACED, Compile, Rewriting, digest
from tritonhook.ptx.module import Ptx

pytestmark = pytest.mark.usefixtures("triton_cache", "slots_are_given_back")


# --- renaming ------------------------------------------------------------------------------------


def test_rename_sets_name_and_origin_and_a_later_process_knows(out, run_python):
    with tritonhook.session(out, rename="cutlass_") as session:
        kernel = compile_kernel()
    assert entries(kernel) == ("cutlass_add_kernel",)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == ("cutlass_add_kernel", "add_kernel")
    assert capture.cubin == kernel.asm["cubin"]
    assert assemble_again(capture) == capture.cubin
    code = "with tritonhook.session('later', rename='cutlass_') as s:\n    kernels.compile_kernel()\n"
    code += "print(json.dumps([[c.kernel, c.rewritten_from, c.cache_hit] for c in s.captures]))"
    assert run_python(code) == [["cutlass_add_kernel", "add_kernel", True]]


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"rename": {"add_kernel": "another"}}, "another"),
        ({"rename": {"something": "another"}}, "add_kernel"),
        ({"rename": tritonhook.Rename(prefix="p_", strip="add")}, "p_kernel"),
        ({"rename": "x_", "strip": "kernel"}, "x_add"),
    ],
)
def test_ways_to_rename(out, arguments, name):
    with tritonhook.session(out, **arguments) as session:
        assert entries(compile_kernel()) == (name,)
    (capture,) = session.captures
    assert capture.rewritten_from == (None if name == "add_kernel" else "add_kernel")


def test_strip(out):
    with tritonhook.session(out, strip=True) as session:
        assert entries(compile_kernel(cutlass_copy_kernel)) == ("copy_kernel",)
        assert entries(compile_kernel(add_kernel)) == ("add_kernel",)
    assert [capture.rewritten_from for capture in session.captures] == ["cutlass_copy_kernel", None]


def test_one_rewrite_needs_no_list(out):
    with tritonhook.session(out, rewrites=tritonhook.Rename(prefix="cutlass_")):
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)


def test_rename_of_one_entry_leaves_other_kernels_alone(out, capfd):
    with tritonhook.session(out, rename=tritonhook.Rename(prefix="cutlass_", entry="add_kernel")) as session:
        assert entries(compile_kernel(multiply_kernel)) == ("multiply_kernel",)
        assert entries(compile_kernel()) == ("cutlass_add_kernel",)
    assert not session.notes
    assert capfd.readouterr().err == ""
    # and Triton's metadata has no note on it
    assert [(c.rewritten_from, c.note) for c in session.captures] == [(None, None), ("add_kernel", None)]


def test_nested_sessions_rewrite_in_order_and_know_the_kernels_own_name(tmp_path):
    with tritonhook.session(tmp_path / "outer", rename="a_") as outer:
        with tritonhook.session(tmp_path / "inner", rename="b_", only="^add_kernel$") as inner:
            assert entries(compile_kernel()) == ("b_a_add_kernel",)
        assert entries(compile_kernel()) == ("a_add_kernel",)
    assert [(c.kernel, c.rewritten_from) for c in inner.captures] == [("b_a_add_kernel", "add_kernel")]
    assert [(c.kernel, c.rewritten_from) for c in outer.captures] == [
        ("b_a_add_kernel", "add_kernel"),
        ("a_add_kernel", "add_kernel"),
    ]
    assert entries(compile_kernel()) == ("add_kernel",)


def test_three_sessions_around_one_another(tmp_path):
    with (
        tritonhook.session(tmp_path / "1", rename="a_"),
        tritonhook.session(tmp_path / "2"),
        tritonhook.session(tmp_path / "3", rename="b_") as last,
    ):
        compile_kernel()
    assert [(c.kernel, c.rewritten_from) for c in last.captures] == [("b_a_add_kernel", "add_kernel")]


# --- Triton's own ways to replace stages ---------------------------------------------------------


def plain_ptx(tmp_path: Path, name: str = "add_kernel") -> Path:
    text = compile_kernel().asm["ptx"]
    path = tmp_path / "add_kernel.ptx"
    path.write_text(Ptx(text).rename_entries({"add_kernel": name}).text)
    return path


@pytest.mark.parametrize("name", ["add_kernel", "another"])
def test_ir_override_of_the_ptx_counts(tmp_path, out, name):
    path = plain_ptx(tmp_path, name)
    with tritonhook.session(out, rename="cutlass_") as session:
        assert entries(compile_kernel(ir_override=str(path))) == (name,)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == (name, None)


def test_kernel_override_of_the_ptx_counts(tmp_path, out, monkeypatch, driver):
    path = plain_ptx(tmp_path)
    source = triton.compiler.ASTSource(
        fn=add_kernel,
        signature={"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 128},
    )
    folder = Path(triton.runtime.cache.get_override_manager(source.hash()).cache_dir)
    assert tmp_path in folder.parents
    folder.mkdir(parents=True)
    path.rename(folder / "add_kernel.ptx")
    monkeypatch.setenv("TRITON_KERNEL_OVERRIDE", "1")
    with tritonhook.session(out, rename="cutlass_"):
        kernel = compile_kernel()
        assert entries(kernel) == ("add_kernel",)
        kernel._init_handles()
    assert driver.loaded == ["add_kernel"]


# --- ptxas fails under the new name --------------------------------------------------------------


@pytest.mark.parametrize("arch", [80, 90, 100])
def test_a_kernel_that_ptxas_cannot_rename_keeps_its_name(tmp_path, out, monkeypatch, capfd, run_python, arch):
    script = wrapper_around_ptxas(tmp_path, monkeypatch, arch, CRASH_ON_CUTLASS)
    with tritonhook.session(out, rename="cutlass_") as session:
        kernel = compile_kernel(arch=arch)
        compile_kernel(arch=arch)
    # then PTX, cubin and name belong together, here and in the cache
    assert entries(kernel) == ("add_kernel",)
    (capture,) = session.captures
    assert (capture.kernel, capture.rewritten_from) == ("add_kernel", None)
    assert capture.note == "not renamed: ptxas failed under the name cutlass_add_kernel"
    # and the crash is kept, with all that is needed to repeat it
    (crash,) = session.crashes
    details = json.loads((crash / "crash.json").read_text())
    assert details["signal"] == "SIGSEGV"
    assert str(script) in details["command"] and f"--gpu-name={capture.arch}" in details["command"]
    assert details["ptxas"] == capture.assembler.version
    assert Ptx((crash / "kernel.ptx").read_text()).entries == ("cutlass_add_kernel",)
    # and the user is told once, without Triton's dump of the PTX
    assert len(session.notes) == 1
    assert "died with SIGSEGV on cutlass_add_kernel" in session.summary
    printed = capfd.readouterr()
    assert ".visible" not in printed.out + printed.err
    # and another process finds the plain kernel with the note
    code = f"with tritonhook.session('later', rename='cutlass_') as s:\n    k = kernels.compile_kernel(arch={arch})\n"
    code += "print(json.dumps([[k.name, c.kernel, c.cache_hit, c.note] for c in s.captures]))"
    assert run_python(code) == [["add_kernel", "add_kernel", True, capture.note]]


def test_a_kernel_that_ptxas_cannot_assemble_at_all_is_tritons_error(tmp_path, out, monkeypatch, capfd):
    always = 'for file in "$@"; do case "$file" in *.ptx) echo "no way" >&2; exit 3;; esac; done'
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, always)
    with tritonhook.session(out, rename="cutlass_") as session, pytest.raises(PTXASError, match="no way"):
        compile_kernel()
    assert len(session.crashes) == 1
    assert not session.records
    printed = capfd.readouterr().out  # Triton's own report, of the kernel under its own name
    assert ".entry add_kernel" in printed
    assert "cutlass_" not in printed


def test_a_crash_under_the_second_of_two_names_keeps_the_first(tmp_path, monkeypatch, driver):
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    with (
        tritonhook.session(tmp_path / "outer", rename="a_") as outer,
        tritonhook.session(tmp_path / "inner", rename="cutlass_") as inner,
    ):
        kernel = compile_kernel()
        kernel._init_handles()
    assert entries(kernel) == ("a_add_kernel",)
    assert driver.loaded == ["a_add_kernel"]
    assert [(c.kernel, c.rewritten_from) for c in outer.captures] == [("a_add_kernel", "add_kernel")]
    assert len(inner.crashes) == 1 and not outer.crashes


def test_a_crash_is_told_even_if_it_cannot_be_kept(tmp_path, out, monkeypatch, capfd):
    wrapper_around_ptxas(tmp_path, monkeypatch, 90, CRASH_ON_CUTLASS)
    with tritonhook.session(out, rename="cutlass_") as session:
        (out / "crashes").write_text("in the way")
        assert entries(compile_kernel()) == ("add_kernel",)
    assert "could not be kept" in session.summary
    assert "could not be kept" in capfd.readouterr().err


# --- one compile, with stand-ins for steps and for Triton's cache --------------------------------


class Part:
    """As a Step: puts its key around what the stages make."""

    def __init__(self, key: str, is_sure: bool = True) -> None:
        self.key, self.is_sure = key, is_sure

    def wrap(self, stages: Any) -> None:
        for name in ("ptx", "cubin"):
            stages[name] = lambda source, metadata, make=stages[name]: f"{self.key}({make(source, metadata)})"


def stages_of(compiles: Compile) -> Any:
    stages: Any = {"ptx": lambda source, metadata: f"ptx {source}", "cubin": lambda source, metadata: f"cubin {source}"}
    compiles.wrap(stages)
    return stages


def test_a_compile_has_the_steps_of_its_sessions_from_the_outermost_on() -> None:
    compiles = Compile("source", [Part("a"), Part("b")])  # type: ignore[list-item]
    assert (compiles.key, compiles.refusal) == ("\0tritonhook:a\0tritonhook:b", None)
    stages, metadata = stages_of(compiles), {"name": "k"}
    text = stages["ptx"]("llir", metadata)
    assert text == "b(a(ptx llir))"
    assert metadata == {"name": "k", META_KEYS: [digest("a"), digest("b")]}
    assert {len(key) for key in metadata[META_KEYS]} == {16}
    cubin = stages["cubin"](text, metadata)
    assert cubin == f"b(a(cubin {text}))" and META_KEYS in metadata and META_NOTE not in metadata
    assert compiles.refusal is None
    stored = [
        (text, "ptx", True),
        ("x", "ptx", False),
        (cubin, "cubin", True),
        ("x", "cubin", False),
        ("x", "ttir", True),
    ]
    assert [compiles._may_store(data, ending) for data, ending, _ in stored] == [may for _, _, may in stored]


def test_what_the_steps_did_not_make_is_not_stored() -> None:
    compiles = Compile("source", [Part("a"), Part("b", is_sure=False)])  # type: ignore[list-item]
    metadata: dict[str, Any] = {}
    stages_of(compiles)["ptx"]("llir", metadata)
    assert compiles.refusal == FAILED and metadata == {}
    assert compiles._may_store("b(a(ptx llir))", "ptx") is False
    for there in ({"ptx": 1}, {"cubin": 1}, {}):
        compiles = Compile("source", [Part("a")])  # type: ignore[list-item]
        stages: Any = dict(there)
        compiles.wrap(stages)
        assert (compiles.refusal, stages) == (REPLACED, there)
    compiles = Compile("source", [Part("a")])  # type: ignore[list-item]
    stages = stages_of(compiles)
    stages["ptx"]("llir", metadata)
    assert stages["cubin"]("their ptx", metadata) == "a(cubin their ptx)"
    assert META_KEYS not in metadata and "replaced afterwards" in metadata.pop(META_NOTE)
    stages["cubin"]("their ptx", metadata)
    assert metadata == {}, "it is said where there was a key"
    assert not compiles._may_store("a(cubin their ptx)", "cubin")


def test_a_cache_entry_gets_only_what_the_steps_made(monkeypatch) -> None:
    kept: list[Any] = []

    class Manager:
        def __init__(self, name: str = "entry") -> None:
            self.name = name

        def put(self, data: Any, filename: str, *given: Any, **named: Any) -> str:
            kept.append((self.name, data, filename, given, named))
            return f"{self.name}/{filename}"

        def put_group(self, *given: Any, **named: Any) -> str:
            kept.append((self.name, given, named))
            return "group"

    compiles, manager = Compile("source", [Part("a")]), Manager()  # type: ignore[list-item]
    stages_of(compiles)["ptx"]("llir", {})
    monkeypatch.setattr(rewriting_module, "_without_key", lambda: Manager("elsewhere"))
    compiles.guard(manager)
    assert manager.put("ir", "k.x.ttir", binary=False) == "entry/k.x.ttir"
    assert manager.put("a(ptx llir)", "k.ptx", 1) == "entry/k.ptx"
    assert manager.put_group("k.json", {"k.ptx": "x"}, more=1) == "group" and compiles.refusal is None
    assert manager.put("theirs", "k.ptx") == "elsewhere/k.ptx" and compiles.refusal == REPLACED
    compiles.refusal = FAILED
    assert manager.put("cubin", "k.cubin", 2, binary=True) == "elsewhere/k.cubin"
    assert manager.put("text", "k.json") == "elsewhere/k.json"
    assert manager.put_group("k.json") is None and compiles.refusal == FAILED
    assert kept == [
        ("entry", "ir", "k.x.ttir", (), {"binary": False}),
        ("entry", "a(ptx llir)", "k.ptx", (1,), {}),
        ("entry", ("k.json", {"k.ptx": "x"}), {"more": 1}),
        ("elsewhere", "theirs", "k.ptx", (), {}),
        ("elsewhere", "cubin", "k.cubin", (2,), {"binary": True}),
        ("elsewhere", "text", "k.json", (), {}),
    ]


def test_a_compile_belongs_to_the_sessions_that_change_it(monkeypatch) -> None:
    told: list[Any] = []

    def session(key: str) -> Any:
        def settings_now(name: str) -> Any:
            told.append((key, name))
            if key == "error":
                raise ValueError("wrong")
            return SimpleNamespace(key=key)

        return SimpleNamespace(settings_now=settings_now, contain=lambda *given: told.append(given[0]))

    made: list[Any] = []
    monkeypatch.setattr(rewriting_module, "Step", lambda *given: made.append(given) or Part(given[1].key))
    added: list[Any] = []

    def new_backend(name: str = "cuda") -> Any:
        add = lambda stages, *given, **named: added.append((given, named)) or stages.update(ptx=str, cubin=str)  # type: ignore[func-returns-value] # noqa: E731
        return SimpleNamespace(target=SimpleNamespace(backend=name), add_stages=add)

    sessions: Any = tuple(map(session, ("a", "", "error", "b")))
    source = SimpleNamespace(name="k", ext="ttir")
    for other, ext in (("hip", "ttir"), ("cuda", "ptx"), ("cuda", "cubin")):
        assert Compile.bind(sessions, SimpleNamespace(name="k", ext=ext), new_backend(other), "options") is None
    assert told == [] and Compile.bind(sessions[1:2], source, new_backend(), "options") is None
    told.clear()
    backend = new_backend()
    compiles = Compile.bind(sessions, source, backend, "options")
    assert compiles is not None and (compiles.key, compiles.source) == ("\0tritonhook:a\0tritonhook:b", source)
    assert told == [("a", "k"), ("", "k"), ("error", "k"), "a kernel stays as it is", ("b", "k")]
    assert [(one[0], one[1].key, *one[2:]) for one in made] == [
        (sessions[0], "a", backend, "options"),
        (sessions[3], "b", backend, "options"),
    ]
    stages: Any = {}
    backend.add_stages(stages, 1, language=2)
    assert added == [((1,), {"language": 2})] and stages["ptx"] == compiles._ptx


def test_a_kernel_is_named_as_its_program_wants_it() -> None:
    fn = SimpleNamespace(_repr=None)
    assert rewriting_module._own_name(SimpleNamespace(name="k", fn=fn)) == "k"
    assert rewriting_module._own_name(SimpleNamespace(name="from a file")) == "from a file"
    told: list[Any] = []
    own = SimpleNamespace(_repr=1, arg_names=["x", "B"], repr=lambda about: told.append(about) or "named")  # type: ignore[func-returns-value]
    source = SimpleNamespace(name="k", fn=own, constants={(1,): 64, (0, 1): 2}, signature={"x": "i32"})
    assert rewriting_module._own_name(source) == "named"
    assert told == [SimpleNamespace(constants={"B": 64}, signature={"x": "i32"})]


def test_the_key_in_memory_is_of_the_sessions_that_a_launch_is_compiled_for() -> None:
    ours, calls = Rewriting(), list[Any]()
    assert (ours.sessions, ours.key) == ((), "")
    session: Any = SimpleNamespace(settings=SimpleNamespace(key="a"))
    compiled = ours._compile_launched(lambda *given, **named: calls.append((given, named, bound())) or "kernel")  # type: ignore[func-returns-value]
    bound = lambda: getattr(ours._thread, "sessions", None)  # noqa: E731
    assert compiled("f", "key", 1, more=2) == "kernel"
    assert compiled("f", "key\0tritonhook:gone\0tritonhook:too", 1) == "kernel"
    ours._settle((session, session))
    assert ours.key == "\0tritonhook:a" * 2
    ours._thread.sessions = ("outer",)
    compiled("f", "key\0tritonhook:gone\0tritonhook:too")
    compiled("f", "key")
    assert calls == [
        (("f", "key", 1), {"more": 2}, None),
        (("f", "key", 1), {}, ()),
        (("f", "key" + ours.key), {}, (session, session)),
        (("f", "key" + ours.key), {}, (session, session)),
    ]
    assert bound() == ("outer",)
    make = ours._key_of_launch(lambda *given, **named: f"{given} {named}")
    assert make(1, a=2) == "(1,) {'a': 2}" + ours.key


def test_a_source_carries_its_sessions_to_the_thread_that_compiles_it() -> None:
    ours = Rewriting()
    session: Any = SimpleNamespace(settings=SimpleNamespace(key="a"))
    key = ours._key_of_async_compile(lambda src, *given, **named: f"{given} {named}")
    for sessions in (None, (), (session,)):
        ours._thread.sessions, source = sessions, SimpleNamespace()
        assert key(source, 1, a=2) == "(1,) {'a': 2}" + "\0tritonhook:a" * len(sessions or ())
        ours._thread.sessions = ("of another thread",)
        assert ours._asked_by(source) == (sessions or ()) and vars(source) == {}
        assert ours._asked_by(source) == ("of another thread",)
    ours._thread.sessions = None
    assert ours._asked_by(object()) == ()
    ours.sessions = (session,)
    assert ours._asked_by(object()) == (session,)  # triton.compile was called
    as_triton: dict[str, Any] = {"__name__": "triton.compiler.compiler", "ask": lambda: ours._asked_by(object())}
    as_jit: dict[str, Any] = {"__name__": "triton.runtime.jit", "triton": as_triton}
    exec("def compile_():\n    return ask()\n", as_triton)
    exec("def launch():\n    return triton['compile_']()\n", as_jit)
    assert (as_triton["compile_"](), as_jit["launch"]()) == ((session,), ()), "the launch began before the session"


class Hearing:
    """As a session: what it was told. fails: when it is told of a kernel."""

    def __init__(self, fails: bool = False) -> None:
        self.settings = SimpleNamespace(key="a")
        self.fails = fails
        self.told: list[Any] = []

    def contain(self, doing: str, error: Exception) -> None:
        self.told.append((doing, type(error)))

    def check_rewritten(self, *given: Any) -> None:
        if self.fails:
            raise ValueError
        self.told.append(given)


def test_a_compile_is_bound_from_its_key_to_its_kernel(monkeypatch) -> None:
    ours, session, broken = Rewriting(), Hearing(), Hearing(fails=True)
    asked: list[Any] = []
    bound: list[Any] = []

    def bind(*given: Any) -> Any:
        asked.append(given)
        if isinstance(bound[0], Exception):
            raise bound[0]
        return bound[0]

    monkeypatch.setattr(Compile, "bind", bind)
    key = ours._key_of_compile(lambda *given, **named: f"{given} {named} ")
    manage = ours._entry_of_compile(lambda *given, **named: (given, named))
    kernel = SimpleNamespace(metadata=SimpleNamespace(_asdict=lambda: {"name": "k"}), made=None)

    def make(kernel: Any, *given: Any, **named: Any) -> None:
        kernel.made = given, named

    init = ours._compiled(make)
    source = SimpleNamespace()
    plain = f"{(source, 'backend', 'options', 1)} {{'a': 2}} "
    assert key(source, "backend", "options", 1, a=2) == plain and asked == [], "without a session"
    assert manage("key", b=1) == (("key",), {"b": 1})
    ours.sessions = (session, broken)  # type: ignore[assignment]
    guarded: list[Any] = []
    compiles = SimpleNamespace(key="ours", guard=guarded.append, refusal=REPLACED, source=source)
    for one, more, reason in ((compiles, "ours", REPLACED), (None, "", LATE), (ValueError("x"), "", LATE)):
        bound[:] = [one]
        ours._thread.compiles = "of another compile"
        assert key(source, "backend", "options", 1, a=2) == plain + more
        assert asked.pop() == (ours.sessions, source, "backend", "options")
        assert manage("key") == (("key",), {}) and guarded == ([(("key",), {})] if more else [])
        guarded.clear()
        told = [("a kernel stays as it is", ValueError)] if isinstance(one, Exception) else []
        init(kernel, source, {"k.ptx": "path"}, 5, c=6)
        assert kernel.made == ((source, {"k.ptx": "path"}, 5), {"c": 6})
        assert session.told == [*told, ({"name": "k"}, {"k.ptx": "path"}, reason)]
        assert broken.told == [*told, ("whether a kernel was rewritten is not known", ValueError)]
        assert ours._thread.compiles is None
        session.told.clear(), broken.told.clear()
    ours._thread.compiles = compiles
    init(kernel, SimpleNamespace(), {})
    assert session.told == [({"name": "k"}, {}, LATE)], "the reason is another compile's"

    def fail(manager: Any) -> None:
        raise OSError

    ours._thread.compiles = SimpleNamespace(guard=fail)
    assert manage("key") == (("key",), {}) and session.told[1:] == [("a kernel stays as it is", OSError)]


def test_launches_are_wrapped_while_a_session_rewrites() -> None:
    from triton.compiler import CompiledKernel, compiler
    from triton.runtime import jit

    now = lambda: (jit.compute_cache_key, CompiledKernel.__dict__["__init__"])  # noqa: E731
    good = lambda: (jit.JITFunction._do_compile, jit.get_cache_key, compiler.get_cache_key, compiler.get_cache_manager)  # noqa: E731
    own, before = now(), good()
    ours = Rewriting()
    first: Any = Hearing()
    second: Any = Hearing()
    try:
        ours.attach(first)
        wrapped, for_good = now(), good()
        assert not set(wrapped) & set(own) and not set(for_good) & set(before)
        ours.attach(second)
        assert (now(), good(), ours.sessions, ours.key) == (wrapped, for_good, (first, second), "\0tritonhook:a" * 2)
        ours.detach(first)
        assert (now(), ours.sessions, ours.key) == (wrapped, (second,), "\0tritonhook:a")
        ours.detach(second)
        assert (now(), good(), ours.sessions, ours.key) == (own, for_good, (), "")
        ours.attach(first)
        ours.detach(first)
        assert (now(), good()) == (own, for_good), "functions of the compile path stay wrapped, once"
    finally:
        for patch in reversed(ours._for_good):
            patch.undo()
    assert good() == before
