"""Write executions of a dry run to files, for `verify`, which compares their output bits.

A launch or function is executed in several orders, with all configurations of an autotuned kernel, with other settings
of kernels, with fewer and more rows, or at several stages of the compilation. Each execution is a line of
FOLDER/executions.jsonl; FOLDER/HASH has the bytes of a buffer. verify/same_bits.py reads them.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tritonhook.capture.dry_run.autotuner import Trial, tuners
from tritonhook.capture.dry_run.gpu import CONFIGS, EXECUTIONS, NUDGED, ORDERS, ROWS, STAGES, TUNED, Compared
from tritonhook.capture.launches.record import Pointer
from tritonhook.capture.patching import Patch
from tritonhook.emulate.errors import Fault, Hang, Unfinished
from tritonhook.emulate.launch import names_of
from tritonhook.emulate.orders import in_orders
from tritonhook.emulate.ptx.kernel import Kernel
from tritonhook.emulate.run import Run, run_code
from tritonhook.errors import NotUnderstood, TritonHookError
from tritonhook.ptx.module import Ptx

_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}  # options and Triton's default values


class Bits:
    """Writer of this process's executions. compared: what to compare; None for nothing. label: text for the number of
    rows being tried; "" if none are. compiled: Triton's kernel of the current launch; None for CuTe. staged: hashes of
    PTX that was already executed at all stages. rows: number of rows being tried. seen: called with each launch, if
    rows are compared. count: number of launches. trials: number of configurations executed in several orders."""

    def __init__(self) -> None:
        self.compared: Compared | None = None
        self.label = ""
        self.compiled: Any = None
        self.staged: set[bytes] = set()
        self.rows = 0
        self.seen: Callable[[str, Kernel, Run, Sequence[bytes]], None] = lambda *_: None
        self.count = self.trials = 0

    def keep(
        self, kind: str, kernel: str, call: int, label: str, buffers: Sequence[Mapping[str, Any]], **more: Any
    ) -> None:
        """Write one execution. kind: as listed in dry_run/gpu.py. call: number of the launch or autotuning. label: text
        that distinguishes this execution from the other executions of the call. buffers: name, dtype, data (bytes) and
        further fields of each buffer."""
        assert self.compared is not None
        folder, kept = Path(self.compared.folder), []
        for buffer in buffers:
            digest = hashlib.sha256(buffer["data"]).hexdigest()
            if not (folder / digest).exists():
                (folder / digest).write_bytes(buffer["data"])
            kept.append({**buffer, "data": digest})
        line = {"kind": kind, "kernel": kernel, "call": call, "label": label, "buffers": kept, **more}
        with (folder / EXECUTIONS).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def launched(
        self, name: str, ptx: Ptx, kernel: Kernel, run: Run, before: Sequence[bytes], after: Sequence[bytes]
    ) -> None:
        """Write a launch that was executed, and execute it again in other orders and at other stages. In an autotuner's
        trial, execute it again only in other orders. before, after: contents of the buffers."""
        assert self.compared is not None
        if tuners.trial is not None:
            if not (self.compared.configs or self.compared.settings):
                self.keep(TUNED, name, 0, "", [])
            elif self.compared.orders > 1:
                self.trials += 1
                self._in_orders(f"{name}[{settings_of(self.compiled)}]", -self.trials, ptx, kernel, run, before, after)
            return
        self.count += 1
        if self.compared.stages:
            self._in_stages(name, ptx, run, before, after)
        if self.label:
            self._with_rows(name, run, before, after)
        elif self.compared.rows:
            self.seen(name, kernel, run, before)
        elif self.compared.orders > 1:
            self._in_orders(name, self.count, ptx, kernel, run, before, after)

    def _in_orders(
        self, name: str, call: int, ptx: Ptx, kernel: Kernel, run: Run, before: Sequence[bytes], after: Sequence[bytes]
    ) -> None:
        assert self.compared is not None
        names, own = names_of(run.launch), dict[int, str]()
        more = {"launch": run.launch.summary}

        def described(contents: Sequence[bytes], numbers: Sequence[int]) -> list[dict[str, Any]]:
            return [
                {"name": names[n], "dtype": run.launch.buffers[n].dtype, "data": contents[n], "at": own.get(n, "")}
                for n in numbers
            ]

        others = in_orders(ptx, kernel, run, before, after, self.compared.orders)
        done, reason = [], ""
        try:
            for one in others:
                own |= {n: "; ".join(map(str, places)) for n, places in one.differing.items()}
                done.append(one)
        except (Fault, Hang, Unfinished, NotUnderstood) as error:
            reason = str(error)
        self.keep(ORDERS, name, call, "program order", described(after, sorted(own)), **more)
        for one in done:
            self.keep(ORDERS, name, call, f"order {one.seed + 1}", described(one.contents, sorted(own)), **more)
        if reason:
            self.keep(ORDERS, name, call, f"order {len(done) + 2}", [], reason=reason, **more)

    def _in_stages(self, name: str, ptx: Ptx, run: Run, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        """Execute the first launch of a kernel by Triton's interpreter, and from machine code of two optimisation
        levels. after: contents of the buffers after the earlier execution of the PTX."""
        from tritonhook.capture.triton.metadata import assembler_of
        from tritonhook.children.interpreted import interpret
        from tritonhook.emulate.sass.kernel import read_sass_kernel
        from tritonhook.ptxas.command_line import level_of, without_level
        from tritonhook.ptxas.toolchain import DEFAULT_ARGUMENTS, find_toolchain, reading_toolchain

        if (key := hashlib.sha256(ptx.text.encode()).digest()) in self.staged:
            return
        self.staged.add(key)
        names, compiled = names_of(run.launch), self.compiled

        def keep(label: str, contents: Sequence[bytes], **more: Any) -> None:
            described = zip(names, run.launch.buffers, contents, strict=True) if contents else ()
            buffers = [{"name": own, "dtype": buffer.dtype, "data": data} for own, buffer, data in described]
            self.keep(STAGES, name, self.count, label, buffers, launch=run.launch.summary, **more)

        try:
            own = interpret(getattr(compiled, "src", None), run.launch, before)
            keep("interpreter", own.contents, undefined=own.undefined)
            for nudged in own.nudged:
                keep(NUDGED, nudged)
        except NotUnderstood as error:
            keep("interpreter", (), reason=f"not known: {error.why}")
        keep("PTX", after, ptx=ptx.text)
        path: str | None = None
        options: Sequence[str] = DEFAULT_ARGUMENTS
        if compiled is not None:
            made = assembler_of(int("".join(filter(str.isdigit, ptx.target))), compiled.metadata._asdict())
            path, options = made.path, made.arguments or options
        tools = find_toolchain(path)
        for arguments in ((*without_level(options), "--opt-level", "0"), options):
            label = f"ptxas {tools.ptxas.version} {level_of(arguments)}"
            try:
                cubin = tools.assemble_or_raise(ptx, arguments).cubin
                code = read_sass_kernel(cubin, reading_toolchain().disassemble(cubin, [name])[name])
                keep(label, run_code(code, run, before).contents)
            except TritonHookError as error:
                keep(label, (), reason=str(error))

    def _with_rows(self, name: str, run: Run, before: Sequence[bytes], after: Sequence[bytes]) -> None:
        tensors = [one for one in run.launch.parameters if isinstance(one, Pointer) and one.buffer is not None]
        buffers = [
            {
                "name": one.name,
                "dtype": one.dtype,
                "data": after[one.buffer],
                "offset": one.offset,
                "shape": one.shape,
                "stride": one.stride,
                "changed": before[one.buffer] != after[one.buffer],
            }
            for one in tensors
            if one.buffer is not None and one.shape
        ]
        grid = "x".join(map(str, run.launch.grid))
        settings = f"{settings_of(self.compiled)}, grid {grid}"
        self.keep(ROWS, name, self.count, self.label, buffers, rows=self.rows, settings=settings)

    def tried(self, name: str, config: Any, trial: Trial, reason: str) -> None:
        """Write a trial of an autotuner, or of other settings. reason: why the trial failed, or ""."""
        assert self.compared is not None
        label = getattr(config, "label", None)
        if label is None:
            if not self.compared.configs:
                return
            usual = ("num_ctas", 1)
            label = ", ".join(f"{key}={value}" for key, value in config.all_kwargs().items() if (key, value) != usual)
        buffers = [
            {"name": name, "dtype": trial.dtypes[name], "data": memory.tobytes()}
            for name, memory, _ in trial.before.values()
        ]
        self.keep(CONFIGS, name, tuners.tunings, label, [] if reason else buffers, reason=last_line(reason))


def last_line(text: str) -> str:
    """Return the last line of an error message. Messages of compilers begin with source code."""
    return text.strip().rpartition("\n")[2].strip()


bits = Bits()


def settings_of(kernel: Any) -> str:
    """Return the constants and options of a kernel compiled by Triton, as text; "" for None."""
    if kernel is None:
        return ""
    names = getattr(getattr(kernel.src, "fn", None), "arg_names", ())
    constants = getattr(kernel.src, "constants", None) or {}
    named = {names[path[0]]: value for path, value in constants.items() if len(path) == 1 and path[0] < len(names)}
    named |= {"num_warps": kernel.metadata.num_warps, "num_stages": kernel.metadata.num_stages}
    return ", ".join(f"{name}={value}" for name, value in named.items())


def begin_comparing(compared: Compared) -> ExitStack:
    """Begin to write executions, until the returned stack is closed."""
    bits.compared = compared
    stack = ExitStack()
    if compared.configs or compared.settings:
        tuners.tried = bits.tried
    if compared.settings:
        from triton.runtime.jit import JITFunction

        stack.callback(Patch(JITFunction, "run", lambda original: _with_settings(compared, original)).undo)
    return stack


# --- other settings of a kernel ------------------------------------------------------------------


def _with_settings(compared: Compared, original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap JITFunction.run: before each launch, execute the kernel with each combination of settings, in the same way
    as an autotuner's trials."""
    settings, tried = compared.settings, set[int]()

    def run(function: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
        own = {name: values for name, values in settings.items() if name in (*function.arg_names, *_OPTIONS)}
        if own and not (warmup or tuners.trying or (compared.once and id(function) in tried)):
            tried.add(id(function))
            _try(function, own, {**dict(zip(function.arg_names, given, strict=False)), **named}, grid)
        return original(function, *given, grid=grid, warmup=warmup, **named)

    return run


def _try(function: Any, settings: Mapping[str, Sequence[Any]], arguments: dict[str, Any], grid: Any) -> None:
    from triton.runtime.autotuner import Autotuner, Config

    options = {name: arguments.pop(name, default) for name, default in _OPTIONS.items()}
    choices = [dict(zip(settings, values, strict=True)) for values in itertools.product(*settings.values())]
    tuners.tunings += 1
    for chosen in ({}, *choices):
        constants = {name: value for name, value in chosen.items() if name not in _OPTIONS}
        config = Config(constants, **options | {name: value for name, value in chosen.items() if name in _OPTIONS})
        config.label = ", ".join(f"{name}={value}" for name, value in chosen.items()) or "as launched"
        tuner = Autotuner(function, function.arg_names, [config], [], None, None)
        tuner.nargs = {}
        left = {name: value for name, value in arguments.items() if name not in constants}
        tuner._bench(config=config, grid=grid, warmup=False, **left)
