"""torch.compile's Inductor without a GPU: its own workers, static launcher, bundles and cache keys, with fakes for CUDA
(tests/support/inductor_program.py). More in tests/gpu/test_gpu_inductor.py."""

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
from tritonhook.capture.policy.model import read_blocks  # noqa: E402
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


def captured(folder: Path, binary_only: bool = False) -> dict[str, list[bool]]:
    """For each kernel, whether each process that met it took it from a cache."""
    opened = CaptureFolder.open(folder)
    found: dict[str, list[bool]] = {}
    for record in opened.records:
        capture = opened.capture(record)
        assert ({"cubin"} if binary_only else {"ptx", "cubin"}) <= {stage.value for stage in capture.artifacts}, record
        found.setdefault(capture.kernel, []).extend(s.cache_hit for s in opened.seen(record))
    return found


# Programs that one process forks, one after the other, with caches of torch's in one folder. Each sees the helper `go`.
PROGRAMS = {
    "plain": "go()",
    "kept": "go('kept')",
    "renamed": "go('renamed', rename='cutlass_')",
    "renamed again": "go('renamed again', rename='cutlass_')",
    "policy": "go('policy', policy=policy('kept', 'name'))",
    "other policy": "go('other policy', policy=policy('kept', 'O1'))",
    "options": "go('options', options='-O1')",
    "options again": "go('options again', options='-O1')",
    "policy of others": "go('policy of others', policy=policy('kept', 'name', kernel='other'))",
    "binary": """
shutil.copytree("torch", "bare")
for path in Path("bare/inductor/triton").rglob("*"):
    if path.is_file() and path.suffix != ".cubin":
        path.unlink()
go("binary", cache="bare", rename="cutlass_")
""",
    # The graph is found under the rewriting's key, but with plain kernels, as in a cache folder of another program.
    "another's cache": """
shutil.copytree("torch", "another")
graphs = sorted(Path("another/graphs").iterdir(), key=lambda path: path.stat().st_mtime_ns)
for graph in graphs[1:]:  # the first is the plain one
    graph.write_bytes(graphs[0].read_bytes())
go("another's cache", cache="another", rename="cutlass_")
""",
    "unknown launcher": """
from tritonhook.capture.inductor import inductor
with tritonhook.session("unknown launcher", rename="cutlass_") as session:
    inductor._launches_any_name = False
    document = p.compiled(Path("fresh"))
print(json.dumps(document | {"notes": session.notes}))
""",
    "last": "go()",
    "tuned": "go('tuned', 'tuned', cache='tuned cache')",
    "pinned": """
write_policy(Path("pins.toml"), (), pins_of(CaptureFolder.open("tuned"), ""))
go("pinned", "tuned", cache="tuned cache", policy="pins.toml")
""",
    "descent": "go('descent', 'tuned', 'descent', cache='descent cache')",
    # A session of the program's own: what is compiled after it is plain.
    "partly": """
os.environ |= {"TORCHINDUCTOR_COMPILE_THREADS": "2", "TORCHINDUCTOR_CACHE_DIR": "partly cache/inductor"}
os.environ |= {"TORCH_WARM_POOL": "0", "POOL_MAY_BE_OFF": "1"}
loaded = p.stand_ins()
with tritonhook.session("partly", rename="cutlass_") as session:
    p.compile_graph(Path("partly cache/graphs"), {"triton_poi_fused_add_0": "+ 1.0"})
p.compile_graph(Path("partly cache/graphs"), {"triton_poi_fused_mul_1": "* 2.0"})
from torch._inductor.runtime.triton_heuristics import StaticTritonCompileResult as S
wrapped = hasattr(S.make_launcher, "__wrapped__")
print(json.dumps({"loaded": sorted(set(loaded)), "notes": session.notes, "wrapped": wrapped}))
""",
    # On the CPU, of a graph without kernels, for which the caches are the same.
    "real": """
os.environ["TORCHINDUCTOR_CACHE_DIR"] = "real cache"
from contextlib import nullcontext
from torch._dynamo.utils import counters
hits = []
for rename in (None, False, "cutlass_", "cutlass_", None):
    torch.compiler.reset()
    counters.clear()
    with nullcontext() if rename is None else tritonhook.session(f"real {len(hits)}", rename=rename or None):
        torch.compile(lambda x: x @ x)(torch.ones(8, 8))
    hits.append(counters["aot_autograd"]["autograd_cache_hit"])
print(json.dumps({"hits": hits}))
""",
}
FORKING = """
import json, os, shutil
from dataclasses import replace
from pathlib import Path
import torch, torch._dynamo, torch._inductor.async_compile, torch._inductor.codecache, torch._inductor.compile_fx
import torch._inductor.triton_bundler, torch._inductor.runtime.static_triton_launcher
import tritonhook, inductor_program as p, policies
from forked import said_by
from tritonhook.capture.policy.model import read_blocks, write_policy
from tritonhook.capture.store import CaptureFolder
from tritonhook.cli.run import pins_of


def policy(folder, text, **change):
    opened, path = CaptureFolder.open(folder), Path(f"{text} {change}.toml")
    policies.policy(path, [opened.capture(record) for record in opened.records], text)
    write_policy(path, [replace(entry, **change) for entry in read_blocks(path).entries[: 1 if change else None]])
    return path

go = p.go

own = {name: value for name, value in globals().items() if not name.startswith("__")}
print(json.dumps(said_by(PROGRAMS, **own)))
"""


@dataclass(frozen=True)
class Said:
    """What each program printed, and the folder with what they captured."""

    folder: Path
    texts: dict[str, str]

    def of(self, name: str) -> dict[str, Any]:
        return json.loads(self.texts[name].splitlines()[-1])

    def __getitem__(self, name: str) -> CaptureFolder:
        return CaptureFolder.open(self.folder / name)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    folder = tmp_path_factory.mktemp("forked")
    code = f"import sys\nsys.path[:0] = [{str(SUPPORT)!r}]\n{FORKING.replace('PROGRAMS', repr(PROGRAMS))}"
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCH_WARM_POOL": "0"}
    done = python_ended("-c", code, folder=folder, without=("TRITON", "TORCH"), **environment)
    return Said(folder, json.loads(done.stdout.splitlines()[-1]))


def assembled(opened: CaptureFolder) -> dict[str, tuple[Any, bytes]]:
    """The assembler and the cubin of each kernel in a capture folder."""
    captures = [opened.capture(record) for record in opened.records]
    return {capture.kernel: (capture.assembler, capture.cubin) for capture in captures}


@pytest.mark.parametrize(
    ("name", "warm", "loaded"),
    [
        ("plain", False, NAMES),
        ("kept", True, NAMES),  # capture alone says nothing to Inductor
        ("renamed", False, RENAMED),
        ("renamed again", True, RENAMED),
        ("policy", False, RENAMED),
        ("other policy", False, NAMES),
        ("options", False, NAMES),
        ("options again", True, NAMES),
        ("policy of others", False, NAMES),
        ("binary", True, RENAMED),
        ("another's cache", True, NAMES),
        ("unknown launcher", False, NAMES),
        ("last", True, NAMES),
    ],
)
def test_each_program_gets_the_kernels_that_it_asked_for(said: Said, name: str, warm: bool, loaded: list[str]) -> None:
    found = said.of(name)
    assert (found["warm"], found["static"], found["own"], found["loaded"]) == (warm, True, NAMES, loaded)
    if name not in ("plain", "last"):
        assert sorted(captured(said.folder / name, name == "binary")) == loaded
    expected = {
        "another's cache": "2 kernels not rewritten (",
        "unknown launcher": "kernels of torch.compile are not renamed",
    }.get(name)
    notes = found.get("notes", [])
    assert len(notes) == (expected is not None) and (expected or "") in "".join(notes), notes


def test_each_change_has_a_key_of_its_own(said: Said) -> None:
    changes = ("plain", "renamed", "policy", "other policy", "options", "policy of others")
    keys = {name: said.of(name)["key"] for name in changes}
    assert len(set(keys.values())) == len(keys)
    for name in ("renamed", "options"):
        assert said.of(f"{name} again")["key"] == keys[name]
    for name, lever in (("policy", "name"), ("other policy", "O1"), ("policy of others", None)):
        assert {said[name].capture(record).lever for record in said[name].records} == {lever}
    plain, first, again = (assembled(said[name]) for name in ("kept", "options", "options again"))
    assert first == again, "also from the warm caches it loads what was assembled with its options"
    for name in NAMES:
        assert first[name][1] != plain[name][1]
        assert "-O1" in first[name][0].arguments and "-O1" not in plain[name][0].arguments
    for name in ("kept", "renamed again", "policy of others"):  # no kernel was compiled again
        assert {hit for hits in captured(said.folder / name).values() for hit in hits} == {True}


def test_of_a_bare_binary_the_binary_is_captured(said: Said) -> None:
    captures = [said["binary"].capture(record) for record in said["binary"].records]
    assert all(capture.binary_only and capture.note for capture in captures)


def test_a_session_in_the_program_is_gone_afterwards(said: Said) -> None:
    found = said.of("partly")
    assert found == {"loaded": [RENAMED[0], NAMES[1]], "notes": [], "wrapped": False}
    assert list(captured(said.folder / "partly")) == RENAMED[:1]


def test_the_caches_of_a_real_torch_compile(said: Said) -> None:
    """A session that captures finds the plain graph, one that renames its own; without one the plain one is found."""
    assert said.of("real")["hits"] == [0, 1, 0, 1, 1]


@pytest.mark.parametrize(("name", "by"), [("tuned", "Inductor"), ("descent", "Inductor, coordinate descent")])
def test_the_winner_of_an_autotuning_is_marked(said: Said, name: str, by: str) -> None:
    folder = said[name]
    assert [tuning.by for tuning in folder.tunings] == [by] * len(NAMES)
    for tuning in folder.tunings:
        options = {record: folder.capture(record).options for record in tuning.among}
        assert tuning.winner in tuning.among
        if name == "tuned":
            assert len({one["constants"]["XBLOCK"] for one in options.values()}) > 1
        else:  # it prefers few warps, and chooses last
            warps = [one["num_warps"] for one in options.values()]
            assert options[tuning.winner]["num_warps"] == min(warps) < max(warps)


def test_a_pinned_winner_is_all_that_is_compiled(said: Said) -> None:
    """A graph that was kept without pins is not taken under them."""
    check_pins(said.folder / "pins.toml", said["tuned"], said["pinned"])
    assert said.of("pinned")["key"] != said.of("tuned")["key"]


def check_pins(path: Path, measured: CaptureFolder, folder: CaptureFolder) -> None:
    """A run under the pins of another one."""
    pins = {pin.function: pin for pin in read_blocks(path).pins}
    assert list(pins) == ["triton_poi_fused_add", "triton_poi_fused_mul"]
    won = {(t.function, t.key): t.by_record[t.chosen] for t in measured.configurations}
    assert won == {(pin.function, pin.key): pin.config for pin in pins.values()}
    warps = {c.kernel: c.options["num_warps"] for c in folder.captures().values() if isinstance(c, Capture)}
    assert len(folder.records) == len(NAMES) and not folder.tunings
    assert all(f"num_warps: {warps[f'{pin.function}_{n}']}" in pin.config for n, pin in enumerate(pins.values()))


# --- `tritonhook run`, with workers of Inductor's ------------------------------------------------


def test_workers_rename_as_the_process_that_launches(run: Run, tmp_path: Path) -> None:
    renamed = run("--out", "renamed", "--prefix", "cutlass_", words=("2",))
    assert (renamed["warm"], renamed["loaded"], renamed["own"]) == (False, RENAMED, NAMES)
    assert "not rewritten" not in renamed["stderr"] and "could not" not in renamed["stderr"]
    assert sorted(captured(tmp_path / "renamed")) == RENAMED


@pytest.mark.nightly
def test_a_winner_of_coordinate_descent_is_pinned(run: Run, tmp_path: Path) -> None:
    run("--out", "a", "--pin", "pins.toml", words=("1", "tuned", "descent"))
    shutil.rmtree(tmp_path / "torch")
    for threads in ("1", "2"):
        run("--out", threads, "--policy", "pins.toml", words=(threads, "tuned"))
        check_pins(tmp_path / "pins.toml", *(CaptureFolder.open(tmp_path / name) for name in ("a", threads)))


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


IN_A_WORKER = """
import torch
from torch._inductor.async_compile import AsyncCompile

def test_a_kernel_of_the_pool():
    AsyncCompile.warm_pool()
    AsyncCompile.wait_pool_ready()
    assert AsyncCompile.use_process_pool()
    x = torch.randn(1000, device="cuda")
    assert torch.allclose(torch.compile(lambda x: torch.relu(x) * 3)(x), torch.relu(x) * 3)
"""


def test_torch_compile_s_processes_know_of_the_dry_run_of_pytest(tmp_path, triton_cache):
    """pytest-xdist gives its workers a sys.path of its own, which they pass on."""
    pytest.importorskip("xdist")
    (tmp_path / "test_it.py").write_text(IN_A_WORKER)
    words = ("-m", "pytest", "-q", "-n", "1", "--kernel-arch", "sm_90a", "--kernel-emulate", "test_it.py")
    python_ended(
        *words,
        folder=tmp_path,
        without=("TRITON", "TORCH", "PYTEST"),
        TORCHINDUCTOR_COMPILE_THREADS="2",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "inductor"),
    )
