"""What tritonhook costs a program that uses Triton: per compile, per cache hit, per launch, per import.

    python -m benchmarks overhead [--with-tritonparse] [--out FILE]

Needs no GPU: compiling is real (a GEMM for sm_90), launches go through the fake driver of the tests, which
runs all of Triton's own launch code. The sides are interleaved round by round in ABBA order; figures are
medians of paired differences. For cache misses it is the time within the tool's listener over the time of a
compile without it: the noise of a compile hides half a millisecond (the pairs are kept too).

Files go to memory (/dev/shm) if there is such a folder, so that a disk does not count. The figures
disk_hit_on_disk_* are with files on the disk of the temp folder. For disk hits the result also has the spread of the
rounds (10th and 90th percentile). Beside all figures it has the load of the machine before and after.

With --with-tritonparse, tritonparse does the same work in an environment of its own (.venv-tritonparse,
made if missing; it needs torch, which only tritonparse imports).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.common import (
    REPOSITORY,
    environment,
    filesystem,
    interleave,
    median_difference,
    seconds,
)

TRITONPARSE = ("tritonparse==0.6.0", "torch==2.13.0")
PEER_ENVIRONMENT = REPOSITORY / ".venv-tritonparse"
LAUNCHES = 2000  # per sample
PTX_BYTES = 320_000
Samples = dict[str, list[float]]
TimedListener = Callable[[list[float]], contextlib.AbstractContextManager[Any]]  # adds the seconds of each call
Side = Callable[[Path], contextlib.AbstractContextManager[Any]]  # enables a tool, given a folder that is new


QUICK = ("--rounds", "2")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--with-tritonparse", action="store_true", help="measure tritonparse too")
    parser.add_argument("--rounds", type=int, default=40, help="rounds of compiles (default: 40)")
    parser.add_argument("--folder", type=Path, default=memory_folder(), help="where caches and captures go meanwhile")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> dict[str, Any] | None:
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="tritonhook-overhead-", dir=arguments.folder) as scratch:
        os.environ["TRITON_HOME"] = scratch
        folders = new_folders(Path(scratch))
        if arguments.peer:
            print(json.dumps(measure_tritonparse(folders, arguments.rounds)))
            return None
        disk = filesystem(Path(scratch))
        samples, summary = measure_tritonhook(folders, arguments.rounds)
    peers = {"tritonparse": run_tritonparse(arguments.rounds, arguments.folder)} if arguments.with_tritonparse else {}
    return {
        "environment": environment("triton", "tritonhook")
        | {"filesystem": disk, "tritonparse": next((peer["version"] for peer in peers.values()), None)}
        | {"load_before_and_after": [*load, os.getloadavg()[0]]},
        "samples": samples,
        "summary": summary,
        "minima": {name: min(values) for name, values in samples.items() if values},
        "peers": peers,
    }


def memory_folder() -> Path | None:
    folder = Path("/dev/shm")
    return folder if os.access(folder, os.W_OK) else None


def new_folders(base: Path) -> Iterator[Path]:
    for number in itertools.count():
        yield base / str(number)


# --- the measurements that tritonhook and its peers share ----------------------------------------


def misses(folders: Iterator[Path], rounds: int, tool: Side, timed_listener: TimedListener) -> list[list[float]]:
    """Seconds per triton.compile with an empty Triton cache: without the tool, with it, within its listener."""
    from triton_kernels import compile_gemm

    within: list[float] = []

    def side(tool: Side) -> Callable[[], float]:
        def sample() -> float:
            os.environ["TRITON_CACHE_DIR"] = str(next(folders))
            with tool(next(folders)), timed_listener(within):
                return seconds(compile_gemm)

        return sample

    compile_once(folders)  # what Triton does once per process is not the overhead of any tool
    return [*interleave(rounds, side(nothing), side(tool)), within]


def hits(folders: Iterator[Path], rounds: int, *tools: Side, repeat: bool = False) -> list[list[float]]:
    """Seconds per triton.compile that Triton's disk cache serves, per tool; with `repeat`, of a kernel the
    tool has met before."""
    from triton_kernels import compile_gemm

    def side(tool: Side) -> Callable[[], float]:
        def sample() -> float:
            with tool(next(folders)):
                if repeat:
                    compile_gemm()
                return seconds(compile_gemm)

        return sample

    compile_once(folders)
    return interleave(rounds, *(side(tool) for tool in tools))


def launches(folders: Iterator[Path], rounds: int, *tools: Side) -> list[list[float]]:
    """Seconds per launch of a kernel that is in Triton's in-memory cache, per tool."""
    from fake_driver import active
    from triton_kernels import add_kernel, fresh

    os.environ["TRITON_CACHE_DIR"] = str(next(folders))
    tensor = stand_in()

    def side(tool: Side, driver: Any) -> Callable[[], float]:
        def sample() -> float:
            kernel = fresh(add_kernel)  # so that the tool meets it

            def batch() -> None:
                for _ in range(LAUNCHES):
                    kernel[(1,)](tensor, tensor, tensor, 1000, BLOCK=128)

            with tool(next(folders)):
                kernel[(1,)](tensor, tensor, tensor, 1000, BLOCK=128)
                spent = seconds(batch)
            driver.launched.clear()
            return spent / LAUNCHES

        return sample

    with active() as driver:
        return interleave(rounds, *(side(tool, driver) for tool in tools))


def stand_in() -> Any:
    """What Triton and tritonhook's recorder ask of a tensor of 1,000 numbers."""
    from triton_kernels import Tensor

    class Recordable(Tensor):
        shape = (1000,)

        def stride(self) -> tuple[int]:
            return (1,)

        def nbytes(self) -> int:
            return 4000

        def untyped_storage(self) -> Recordable:
            return self

    return Recordable()


def compile_once(folders: Iterator[Path]) -> None:
    from triton_kernels import compile_gemm

    os.environ["TRITON_CACHE_DIR"] = str(next(folders))
    compile_gemm()


def nothing(_folder: Path) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


# --- tritonhook ----------------------------------------------------------------------------------


def measure_tritonhook(folders: Iterator[Path], rounds: int) -> tuple[Samples, dict[str, float]]:
    import tritonhook

    capturing = tritonhook.session
    renaming, recording = partial(capturing, rename="cutlass_"), partial(capturing, launches=True)
    samples: Samples = {}
    samples["miss_plain_s"], samples["miss_captured_s"], samples["miss_in_listener_s"] = misses(
        folders, rounds, capturing, timed_telling
    )
    samples["hit_plain_s"], samples["hit_captured_s"] = hits(folders, 5 * rounds, nothing, capturing)
    with tempfile.TemporaryDirectory(prefix="tritonhook-overhead-") as disk:
        samples["hit_on_disk_plain_s"], samples["hit_on_disk_captured_s"] = hits(
            new_folders(Path(disk)), rounds, nothing, capturing
        )
    samples["repeat_plain_s"], samples["repeat_captured_s"] = hits(folders, 5 * rounds, nothing, capturing, repeat=True)
    samples["launch_plain_s"], samples["launch_captured_s"], samples["launch_renamed_s"] = launches(
        folders, rounds, nothing, capturing, renaming
    )
    samples["launch_unrecorded_s"], samples["launch_recorded_s"] = launches(
        folders, max(3, rounds // 10), nothing, recording
    )
    samples["import_s"], samples["import_and_enable_s"] = imports(min(20, rounds))
    samples["rename_s"] = renames(min(30, rounds))
    samples["diff_s"], samples["diff_own_s"], samples["diff_nvdisasm_s"] = diffs(min(8, rounds))
    summary = {
        "compile_miss_added_ratio": median(samples["miss_in_listener_s"]) / median(samples["miss_plain_s"]),
        **added_ms("disk_hit", samples["hit_captured_s"], samples["hit_plain_s"]),
        **added_ms("disk_hit_on_disk", samples["hit_on_disk_captured_s"], samples["hit_on_disk_plain_s"]),
        **added_ms("disk_hit_repeat", samples["repeat_captured_s"], samples["repeat_plain_s"]),
        "launch_added_us": 1e6 * median_difference(samples["launch_captured_s"], samples["launch_plain_s"]),
        "launch_recorded_added_us": 1e6
        * median_difference(samples["launch_recorded_s"], samples["launch_unrecorded_s"]),
        "launch_renamed_added_us": 1e6 * median_difference(samples["launch_renamed_s"], samples["launch_plain_s"]),
        "import_ms": 1e3 * median(samples["import_s"]),
        "import_and_enable_ms": 1e3 * median(samples["import_and_enable_s"]),
        "rename_ms": 1e3 * median(samples["rename_s"]),
        "diff_s": median(samples["diff_s"]),
        "diff_own_ms": 1e3 * median(samples["diff_own_s"]),
    }
    return samples, summary


@contextlib.contextmanager
def timed_telling(times: list[float]) -> Iterator[None]:
    """Adds the seconds that tritonhook's sessions take to read a kernel. They hear of it beside Triton's listener."""
    from tritonhook.capture.patching import Hooks

    tell = Hooks.tell
    Hooks.tell = lambda hooks, doing, report: times.append(seconds(lambda: tell(hooks, doing, report)))
    try:
        yield
    finally:
        Hooks.tell = tell


def added_ms(name: str, with_tool: list[float], plain: list[float]) -> dict[str, float]:
    """Milliseconds that a tool adds: the median of the rounds' differences, and their 10th and 90th percentile."""
    tenths = quantiles([tool - without for tool, without in zip(with_tool, plain, strict=True)], n=10)
    return {
        f"{name}_added_ms": 1e3 * median_difference(with_tool, plain),
        f"{name}_added_low_ms": 1e3 * tenths[0],
        f"{name}_added_high_ms": 1e3 * tenths[-1],
    }


def imports(rounds: int) -> list[list[float]]:
    """Seconds of `import tritonhook`, and of that and `enable()` beside a Triton that is imported already, each in a
    fresh process with compiled bytecode at hand."""
    timed = "import time; s = time.perf_counter(); {}; print(time.perf_counter() - s)"

    with tempfile.TemporaryDirectory(prefix="tritonhook-overhead-") as folder:
        bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}

        def side(code: str) -> Callable[[], float]:
            command, variables = [sys.executable, "-c", code], os.environ | bytecode
            return lambda: float(
                subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, check=True).stdout
            )

        enable = "import triton.compiler; " + timed.format(f"import tritonhook; tritonhook.enable({folder!r})")
        sides = side(timed.format("import tritonhook")), side(enable)
        interleave(1, *sides)  # writes the bytecode
        return interleave(rounds, *sides)


def renames(rounds: int) -> list[float]:
    """Seconds to read a PTX module of 320 KB and rename its entry, as a session does in Triton's ptx stage."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.rename import Rename

    text, rename = large_ptx(), Rename(prefix="cutlass_")
    return [seconds(lambda: rename.apply(Ptx(text))) for _ in range(rounds)]


def large_ptx() -> str:
    """The GEMM's PTX with its body repeated. Every name keeps its density; it is not meant to be run."""
    from triton_kernels import compile_gemm

    text = compile_gemm().asm["ptx"]
    start = re.search(r"^\$L__func_begin0:\n", text, re.MULTILINE)
    end = text.index("ret;")
    assert start is not None
    body = text[start.end() : end]
    return text[:end] + body * (1 + (PTX_BYTES - len(text)) // len(body)) + text[end:]


def diffs(rounds: int) -> list[list[float]]:
    """Seconds of a whole diff of two cubins from their bytes, of tritonhook's own part, and of nvdisasm."""
    from tritonhook.compare.names import diff_cubins
    from tritonhook.cubin.image import Cubin
    from tritonhook.ptxas import toolchain

    tools, images = attention_pair()
    run = toolchain.run_nvdisasm
    outputs: dict[Any, str] = {}  # of nvdisasm, by its arguments

    def recalled(*arguments: Any) -> str:
        if arguments not in outputs:
            outputs[arguments] = run(*arguments)
        return outputs[arguments]

    def whole() -> None:
        diff_cubins(*(Cubin.from_bytes(image) for image in images), toolchain=tools)

    def own() -> float:
        toolchain.run_nvdisasm = recalled
        try:
            whole()
            return seconds(whole)
        finally:
            toolchain.run_nvdisasm = run

    return interleave(
        rounds, lambda: seconds(whole), own, lambda: seconds(lambda: [run(tools.nvdisasm, i) for i in images])
    )


def attention_pair() -> tuple[Any, tuple[bytes, bytes]]:
    """The attention kernel of gluon_kernels under a plain and a cutlass_ name; the GEMM where it does not compile."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas import toolchain

    try:
        from gluon_kernels import compile_offline

        text, arguments = compile_offline().asm["ptx"], ("-lineinfo", "-v")
    except Exception as error:
        print(f"the attention kernel does not compile here ({error}); the GEMM takes its place", file=sys.stderr)
        from triton_kernels import compile_gemm

        text, arguments = compile_gemm().asm["ptx"], ("-lineinfo", "-v")
    tools, ptx = toolchain.find_toolchain(), Ptx(text)
    sides = (ptx.rename_entries({ptx.only_entry(): f"{prefix}_kernel"}) for prefix in ("cutlasz", "cutlass"))
    a, b = (tools.assemble_or_raise(side, arguments).cubin.data for side in sides)
    return tools, (a, b)


# --- tritonparse ---------------------------------------------------------------------------------


def run_tritonparse(rounds: int, folder: Path | None) -> dict[str, Any]:
    """The same measurements with tritonparse, in its own environment."""
    python = PEER_ENVIRONMENT / "bin" / "python"
    if not python.exists():
        import triton

        subprocess.run([sys.executable, "-m", "venv", PEER_ENVIRONMENT], check=True)
        packages = [f"triton=={triton.__version__}", *TRITONPARSE, "pyelftools"]
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    command = [python, "-m", "benchmarks", "overhead", "--peer", "--rounds", str(rounds)]
    command += ["--folder", str(folder)] if folder else []
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


@contextlib.contextmanager
def timed_slot(times: list[float]) -> Iterator[None]:
    """Adds the seconds that the function in Triton's one slot for listeners takes, if there is one."""
    from triton import knobs

    held = knobs.compilation.listener
    if held is None:
        yield
        return
    knobs.compilation.listener = lambda **event: times.append(seconds(lambda: held(**event)))
    try:
        yield
    finally:
        knobs.compilation.listener = held


def measure_tritonparse(folders: Iterator[Path], rounds: int) -> dict[str, Any]:
    import tritonparse.structured_logging as tritonparse
    from triton import knobs

    empty_chains = knobs.runtime.launch_enter_hook

    @contextlib.contextmanager
    def tracing(folder: Path, launches: bool = False) -> Iterator[None]:
        tritonparse.init(str(folder), enable_trace_launch=launches)
        try:
            yield
        finally:
            tritonparse.clear_logging_config()
            knobs.runtime.launch_enter_hook = empty_chains  # it leaves None

    samples: Samples = {}
    samples["miss_plain_s"], samples["miss_traced_s"], samples["miss_in_listener_s"] = misses(
        folders, rounds, tracing, timed_slot
    )
    samples["hit_plain_s"], samples["hit_traced_s"] = hits(folders, 5 * rounds, nothing, tracing)
    samples["repeat_plain_s"], samples["repeat_traced_s"] = hits(folders, rounds, nothing, tracing, repeat=True)
    samples["launch_plain_s"], samples["launch_traced_s"] = launches(folders, rounds, nothing, tracing)
    samples["launch_unrecorded_s"], samples["launch_recorded_s"] = launches(
        folders, max(3, rounds // 10), nothing, lambda folder: tracing(folder, launches=True)
    )
    return {
        "version": environment("tritonparse")["tritonparse"],
        "note": "arguments of launches are stand-ins; tritonparse would record more of tensors, tritonhook the same",
        "samples": samples,
        "summary": {
            "compile_miss_added_ratio": median(samples["miss_in_listener_s"]) / median(samples["miss_plain_s"]),
            **added_ms("disk_hit", samples["hit_traced_s"], samples["hit_plain_s"]),
            **added_ms("disk_hit_repeat", samples["repeat_traced_s"], samples["repeat_plain_s"]),
            "launch_added_us": 1e6 * median_difference(samples["launch_traced_s"], samples["launch_plain_s"]),
            "launch_recorded_added_us": 1e6
            * median_difference(samples["launch_recorded_s"], samples["launch_unrecorded_s"]),
        },
        "minima": {name: min(values) for name, values in samples.items()},
    }
