"""torch.compile's Inductor without a GPU: its own workers, static launcher, bundles and cache keys, with fakes for CUDA
(tests/support/inductor_program.py). Needs torch, which `make test` does not install. More in
tests/gpu/test_gpu_inductor.py."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ended import python_ended
from repository import ROOT, SUPPORT

torch = pytest.importorskip("torch", minversion="2.13", reason="needs torch 2.13, e.g. its CPU build")
pytest.importorskip("triton", minversion="3.6")

from tritonhook.capture.model import Capture  # noqa: E402
from tritonhook.capture.policy.model import read_pins  # noqa: E402
from tritonhook.capture.store import CaptureFolder  # noqa: E402

NAMES = ["triton_poi_fused_add_0", "triton_poi_fused_mul_1"]
RENAMED = [f"cutlass_{name}" for name in NAMES]
# In Inductor's workers: no GPU backend is active there either.
SITE = """
from tritonhook._util.imports import AfterImport

def patch():
    import sys
    sys.modules["torch._inductor.runtime.triton_helpers"].set_driver_to_gpu = lambda: None

AfterImport("torch._inductor.runtime.triton_helpers", patch).begin()
"""
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(tmp_path: Path, triton_cache: Path) -> Run:
    """Run the program, under `tritonhook run` with these options if there are any."""
    return runner(tmp_path)


def runner(folder: Path) -> Run:
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(SITE)

    def go(*options: str, words: tuple[str, ...] = ("1",), code: str | None = None) -> dict[str, Any]:
        program = SUPPORT / "inductor_program.py"
        if code is not None:
            program = folder / "program.py"
            program.write_text(f"import sys\nsys.path[:0] = [{str(SUPPORT)!r}]\n{code}")
        prefix = ["-m", "tritonhook", "run", *options] if options else []
        done = python_ended(
            *(*prefix, str(program), str(folder / "torch"), *words),
            folder=folder,
            without=("TRITON", "TORCH"),
            PYTHONPATH=os.pathsep.join([str(ROOT), str(folder / "site")]),
        )
        return json.loads(done.stdout.splitlines()[-1]) | {"stderr": done.stderr}

    return go


@dataclass(frozen=True)
class Before:
    """Runs that several tests start from: what each said, and their folder with captures and torch's caches."""

    folder: Path
    said: dict[str, dict[str, Any]]

    def caches(self, tmp_path: Path) -> None:
        """A copy of the caches for this test's runs."""
        shutil.copytree(self.folder / "torch", tmp_path / "torch")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Before:
    """A plain run, a renamed one in two workers, and one that captures what the first one left."""
    folder = tmp_path_factory.mktemp("before")
    run = runner(folder)
    plain, renamed = run(), run("--out", "renamed", "--prefix", "cutlass_", words=("2",))
    return Before(folder, {"plain": plain, "renamed": renamed, "again": run("--out", "again")})


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Before:
    """An autotuning with pins.toml of its winners."""
    folder = tmp_path_factory.mktemp("tuned")
    return Before(folder, {"plain": runner(folder)("--out", "a", "--pin", "pins.toml", words=("1", "tuned"))})


def captured(folder: Path) -> dict[str, list[bool]]:
    """For each kernel, whether each process that met it took it from a cache."""
    opened = CaptureFolder.open(folder)
    found: dict[str, list[bool]] = {}
    for record in opened.records:
        capture = opened.capture(record)
        assert {"ptx", "cubin"} <= {stage.value for stage in capture.artifacts}, record
        found.setdefault(capture.kernel, []).extend(s.cache_hit for s in opened.seen(record))
    return found


def test_a_rename_has_keys_of_its_own(before: Before) -> None:
    """In brief what the next test does with every change: plain, renamed and plain again, in one cache."""
    plain, renamed, again = before.said.values()
    assert [one["warm"] for one in (plain, renamed, again)] == [False, False, True]
    assert [one["loaded"] for one in (plain, renamed, again)] == [NAMES, RENAMED, NAMES]
    assert plain["key"] == again["key"] != renamed["key"]
    assert "0 from cache" in renamed["stderr"] and "not rewritten" not in renamed["stderr"]
    assert sorted(captured(before.folder / "renamed")) == RENAMED
    assert sorted(captured(before.folder / "again")) == NAMES


@pytest.mark.nightly
@pytest.mark.parametrize("threads, asked", [("1", "options"), ("2", "ptxas")])
def test_every_cache_gives_the_kernel_that_was_asked_for(run: Run, tmp_path: Path, threads: str, asked: str) -> None:
    """Plain, captured only, renamed, with a policy that renames and one of options, with a `ptxas=` or `options=` of
    the session's own, and plain again; cold and warm, in one cache; compiled here and in workers, launched by the
    static launcher. Where the cache is warm, workers have nothing to do: those runs start none."""
    path = other_ptxas()
    changes = ["--ptxas", path] if asked == "ptxas" else ["--options=-O1"]

    def cold_and_warm(name: str, *options: str) -> list[dict[str, Any]]:
        return [run("--out", out, *options, words=(words,)) for out, words in ((name, threads), (f"{name} again", "1"))]

    plain, kept = run(words=(threads,)), run("--out", "plain")
    named = policy_for(tmp_path / "plain", tmp_path / "named.toml", "name")
    options = policy_for(tmp_path / "plain", tmp_path / "options.toml", "O1")
    renamed, renamed_again = cold_and_warm("renamed", "--prefix", "cutlass_")
    by_policy, by_policy_again = cold_and_warm("policy", "--policy", named)
    other_policy = run("--out", "other policy", "--policy", options, words=(threads,))
    assembler, assembler_again = cold_and_warm("assembler", *changes)
    again, last = run("--out", "again"), run()

    cold = [plain, renamed, by_policy, other_policy, assembler]
    warm = [kept, renamed_again, by_policy_again, assembler_again, again, last]
    assert [(one["warm"], one["static"], one["own"]) for one in cold] == [(False, True, NAMES)] * len(cold)
    assert [(one["warm"], one["static"], one["own"]) for one in warm] == [(True, True, NAMES)] * len(warm)
    for one in (renamed, renamed_again, by_policy, by_policy_again):
        assert one["loaded"] == RENAMED
    for one in (plain, kept, other_policy, assembler, assembler_again, again, last):
        assert one["loaded"] == NAMES
    assert len({one["key"] for one in cold}) == len(cold)
    assert {one["key"] for one in (kept, again, last)} == {plain["key"]}  # capture alone says nothing to Inductor
    pairs = [(renamed, renamed_again), (by_policy, by_policy_again), (assembler, assembler_again)]
    assert all(first["key"] == second["key"] for first, second in pairs)
    assert "0 from cache" in renamed["stderr"]
    for one in (*cold, *warm):
        assert "not rewritten" not in one["stderr"] and "could not" not in one["stderr"]

    # and each run captured all that it launched; where the cache was warm, nothing was compiled
    assert sorted(captured(tmp_path / "renamed")) == sorted(captured(tmp_path / "renamed again")) == RENAMED
    assert sorted(captured(tmp_path / "again")) == NAMES
    for name in ("renamed again", "again"):
        assert {hit for hits in captured(tmp_path / name).values() for hit in hits} == {True}
    for name, lever in (("policy", "name"), ("policy again", "name"), ("other policy", "O1"), ("again", None)):
        opened = CaptureFolder.open(tmp_path / name)
        assert {opened.capture(record).lever for record in opened.records} == {lever}, name

    # also from the warm caches it loads what the ptxas that it asked for made
    assert assembled(tmp_path / "assembler again") == assembled(tmp_path / "assembler")
    assert assembled(tmp_path / "again") == assembled(tmp_path / "plain")
    for name in NAMES:
        own, own_cubin = assembled(tmp_path / "plain")[name]
        asked_for, cubin = assembled(tmp_path / "assembler again")[name]
        assert own_cubin != cubin
        assert ("-O1" in asked_for.arguments) == (asked == "options") and "-O1" not in own.arguments
        assert (asked_for.path == path) == (asked == "ptxas") and own.path != path
        assert (asked_for.version != own.version) == (asked == "ptxas")


def other_ptxas() -> str:
    """A ptxas that Triton does not take for sm_90a, of another version than the one that it does take: Triton 3.9 takes
    for sm_90a what earlier ones take for sm_100a only."""
    from triton.backends.nvidia.compiler import get_ptxas

    own, *others = (str(get_ptxas(arch).path) for arch in (90, 80, 100))
    return next(path for path in others if path != own)


def assembled(folder: Path) -> dict[str, tuple[Any, bytes]]:
    """The assembler and the cubin of each kernel in a capture folder."""
    opened = CaptureFolder.open(folder)
    captures = [opened.capture(record) for record in opened.records]
    return {capture.kernel: (capture.assembler, capture.cubin) for capture in captures}


def policy_for(folder: Path, path: Path, text: str) -> str:
    """A policy that gives each captured kernel the lever."""
    import policies

    opened = CaptureFolder.open(folder)
    policies.policy(path, [opened.capture(record) for record in opened.records], text)
    return str(path)


def test_a_session_in_the_program_compiles_here_and_is_gone_afterwards(run: Run, tmp_path: Path) -> None:
    code = """
import json, os, inductor_program as p
from pathlib import Path
import tritonhook
cache = Path(sys.argv[1])
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "2"
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache / "inductor")
os.environ["TORCH_WARM_POOL"] = "0"
os.environ["POOL_MAY_BE_OFF"] = "1"
loaded = p.stand_ins()
kernels = {"triton_poi_fused_add_0": "+ 1.0"}
with tritonhook.session("mine", rename="cutlass_") as session:
    inside = p.compile_graph(cache / "graphs", kernels, False)
kernels["triton_poi_fused_mul_1"] = "* 2.0"
outside = p.compile_graph(cache / "graphs", {"triton_poi_fused_mul_1": "* 2.0"}, False)
from torch._inductor.runtime.triton_heuristics import StaticTritonCompileResult as S
print(json.dumps({"loaded": loaded, "notes": session.notes, "kernels": [c.kernel for c in session.captures],
                  "wrapped": hasattr(S.make_launcher, "__wrapped__")}))
"""
    seen = run(code=code)
    assert set(seen["loaded"]) == {"cutlass_triton_poi_fused_add_0", "triton_poi_fused_mul_1"}
    assert set(seen["kernels"]) == {"cutlass_triton_poi_fused_add_0"}
    assert (seen["notes"], seen["wrapped"]) == ([], False)


@pytest.mark.parametrize("options", [pytest.param((), marks=pytest.mark.nightly), ("--prefix", "cutlass_")])
def test_of_a_bare_binary_the_binary_is_captured(
    before: Before, run: Run, tmp_path: Path, options: tuple[str, ...]
) -> None:
    before.caches(tmp_path)
    for path in (tmp_path / "torch" / "inductor" / "triton").rglob("*"):
        if path.is_file() and path.suffix != ".cubin":
            path.unlink()
    seen = run("--out", "b", *options)
    assert seen["warm"]
    assert seen["loaded"] == (RENAMED if options else NAMES)
    folder = CaptureFolder.open(tmp_path / "b")
    captures = [folder.capture(record) for record in folder.records]
    assert {capture.kernel for capture in captures} == set(seen["loaded"])
    assert all(capture.binary_only and capture.note for capture in captures)


def test_a_pinned_winner_is_all_that_is_compiled(tuned: Before, run: Run, tmp_path: Path) -> None:
    """In worker processes, too; a graph that was kept under pins is not taken by a run without them."""
    check_pins(tuned.folder, tuned.said["plain"]["key"], run, tmp_path, threads="2")


@pytest.mark.nightly
def test_a_winner_of_coordinate_descent_is_pinned(run: Run, tmp_path: Path) -> None:
    key = run("--out", "a", "--pin", "pins.toml", words=("1", "tuned", "descent"))["key"]
    shutil.rmtree(tmp_path / "torch")
    for threads in ("1", "2"):
        check_pins(tmp_path, key, run, tmp_path, threads)


def check_pins(measured: Path, key: str, run: Run, tmp_path: Path, threads: str) -> None:
    """A run under the pins of another one, whose graph had the key."""
    pins = {pin.function: pin for pin in read_pins(measured / "pins.toml")}
    assert list(pins) == ["triton_poi_fused_add", "triton_poi_fused_mul"]
    won = {(t.function, t.key): t.by_record[t.chosen] for t in CaptureFolder.open(measured / "a").configurations}
    assert won == {(pin.function, pin.key): pin.config for pin in pins.values()}
    out = f"pinned {threads}"
    found = run("--out", out, "--policy", str(measured / "pins.toml"), words=(threads, "tuned"))
    folder = CaptureFolder.open(tmp_path / out)
    warps = {c.kernel: c.options["num_warps"] for c in folder.captures().values() if isinstance(c, Capture)}
    assert len(folder.records) == len(NAMES) and not folder.tunings
    assert all(f"num_warps: {warps[f'{pin.function}_{n}']}" in pin.config for n, pin in enumerate(pins.values()))
    assert found["key"] != key


def test_the_winner_of_an_autotuning_is_marked(tuned: Before) -> None:
    folder = CaptureFolder.open(tuned.folder / "a")
    assert {tuning.by for tuning in folder.tunings} == {"Inductor"}
    assert len(folder.tunings) == len(NAMES)
    for tuning in folder.tunings:
        assert tuning.winner in tuning.among
        assert len(tuning.among) > 1
        blocks = {folder.capture(record).options["constants"]["XBLOCK"] for record in tuning.among}
        assert len(blocks) > 1


def test_coordinate_descent_chooses_last(run: Run, tmp_path: Path) -> None:
    run("--out", "a", words=("1", "tuned", "descent"))
    folder = CaptureFolder.open(tmp_path / "a")
    assert {tuning.by for tuning in folder.tunings} == {"Inductor, coordinate descent"}
    assert len(folder.tunings) == len(NAMES)
    for tuning in folder.tunings:
        warps = {record: folder.capture(record).options["num_warps"] for record in tuning.among}
        assert warps[tuning.winner] == min(warps.values()) < max(warps.values())


def test_an_unknown_launcher_keeps_names(run: Run, tmp_path: Path) -> None:
    """If this torch has a static launcher of another kind, no kernel is renamed, and there is one note."""
    code = """
import inductor_program as p
from tritonhook.capture.inductor import inductor
import torch._inductor.runtime.triton_heuristics
inductor._launches_any_name = False
p.main()
"""
    seen = run("--out", "a", "--prefix", "cutlass_", code=code)
    assert seen["loaded"] == NAMES
    assert seen["stderr"].count("kernels of torch.compile keep their own names") == 1


def test_a_cache_that_has_them_under_their_own_names_is_reported(before: Before, run: Run, tmp_path: Path) -> None:
    """The graph is found under the rewriting's key, but with plain kernels, as in a cache folder of another program."""
    before.caches(tmp_path)
    key, plain = (before.said[name]["key"] for name in ("renamed", "plain"))
    graphs = tmp_path / "torch" / "graphs"
    (graphs / f"{key}.graph").write_bytes((graphs / f"{plain}.graph").read_bytes())
    seen = run("--out", "b", "--prefix", "cutlass_")
    assert seen["loaded"] == NAMES
    assert "2 kernels not rewritten (" in seen["stderr"]
    assert "from torch.compile's caches or workers" in seen["stderr"]


def test_the_caches_of_a_real_torch_compile(run: Run) -> None:
    """On the CPU, of a graph without kernels, for which the caches are the same: a session that captures finds the
    plain graph, one that renames finds its own, and what comes after it the plain one."""
    code = """
import json, os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1]
import torch, tritonhook
from contextlib import nullcontext
from torch._dynamo.utils import counters
hits = []
for rename in (None, False, "cutlass_", "cutlass_", None):
    torch.compiler.reset()
    counters.clear()
    with nullcontext() if rename is None else tritonhook.session(f"a{len(hits)}", rename=rename or None):
        torch.compile(lambda x: x @ x)(torch.ones(8, 8))
    hits.append(counters["aot_autograd"]["autograd_cache_hit"])
print(json.dumps({"hits": hits}))
"""
    assert run(code=code)["hits"] == [0, 1, 0, 1, 1]


@pytest.mark.nightly
def test_processes_share_the_caches_of_a_real_torch_compile(run: Run) -> None:
    """The same by `tritonhook run`."""
    code = """
import json, os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = sys.argv[1]
import torch
from torch._dynamo.utils import counters
torch.compile(lambda x: x @ x)(torch.ones(8, 8))
print(json.dumps({"hits": counters["aot_autograd"]["autograd_cache_hit"]}))
"""
    prefix = ("--out", "a", "--prefix", "cutlass_")
    assert [run(*options, code=code)["hits"] for options in ((), ("--out", "a"), prefix, prefix, ())] == [0, 1, 0, 1, 1]


def test_a_policy_of_other_kernels_compiles_the_graph_again_but_no_kernel(
    before: Before, run: Run, tmp_path: Path
) -> None:
    from dataclasses import replace

    from tritonhook.capture.policy.model import read_entries, write_policy

    before.caches(tmp_path)
    path = Path(policy_for(before.folder / "again", tmp_path / "p.toml", "name"))
    write_policy(path, [replace(entry, kernel="other") for entry in read_entries(path)[:1]])
    seen = run("--out", "a", "--policy", str(path))
    assert (seen["warm"], seen["loaded"]) == (False, NAMES)
    assert {hit for hits in captured(tmp_path / "a").values() for hit in hits} == {True}
