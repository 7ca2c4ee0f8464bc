"""Executions of a dry run whose stored bits `verify` compares: launches in several orders, configurations of autotuned
kernels, other settings of all kernels, a function again with fewer and more rows.

Each is a line of FOLDER/executions.jsonl; FOLDER/HASH has the bytes of a buffer. verify/same_bits.py reads them.
"""

from __future__ import annotations

import atexit
import hashlib
import itertools
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

from tritonhook._util.text import say
from tritonhook.capture.dry_run.autotuner import Trial, tuners
from tritonhook.capture.dry_run.gpu import CONFIGS, EXECUTIONS, ORDERS, REFUSED, RESULT, ROWS, Compared
from tritonhook.capture.launches.record import Pointer
from tritonhook.capture.patching import Patch
from tritonhook.emulate.errors import Fault, Hang, Unfinished
from tritonhook.emulate.launch import names_of
from tritonhook.emulate.orders import in_orders
from tritonhook.emulate.ptx.kernel import Kernel
from tritonhook.emulate.run import Run
from tritonhook.errors import NotUnderstood
from tritonhook.ptx.module import Ptx

BATCHES = 1, 2, 7, 16, 64, 256
_OPTIONS = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None}  # with Triton's defaults
_LIBRARIES = {"torch", "triton", "numpy", "tritonhook", "runpy", "importlib"}


class Bits:
    """What this process keeps. compared: None where nothing is compared. label: of the rows that are tried now, or "".
    settings: returns those of the kernel that is launched now. launched_by: functions that launch, with their tensor
    arguments. count: of launches."""

    def __init__(self) -> None:
        self.compared: Compared | None = None
        self.label = ""
        self.settings: Callable[[], str] = str
        self.rows = 0
        self.launched_by: dict[str, None] = {}
        self.count = 0

    def keep(
        self, kind: str, kernel: str, call: int, label: str, buffers: Sequence[Mapping[str, Any]], **more: Any
    ) -> None:
        """Write one execution. buffers: each with its name, dtype and `data`, and what else describes it."""
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
        """Keep a launch that was executed, and execute it in the other orders."""
        assert self.compared is not None
        self.count += 1
        if self.label:
            self._with_rows(name, run, before, after)
        elif self.compared.rows:
            self.launched_by |= dict.fromkeys(_functions(sys._getframe()))
        elif self.compared.orders > 1:
            self._in_orders(name, ptx, kernel, run, before, after)

    def _in_orders(
        self, name: str, ptx: Ptx, kernel: Kernel, run: Run, before: Sequence[bytes], after: Sequence[bytes]
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
        self.keep(ORDERS, name, self.count, "program order", described(after, sorted(own)), **more)
        for one in done:
            self.keep(ORDERS, name, self.count, f"order {one.seed + 1}", described(one.contents, sorted(own)), **more)
        if reason:
            self.keep(ORDERS, name, self.count, f"order {len(done) + 2}", [], reason=reason, **more)

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
            }
            for one in tensors
            if one.buffer is not None and one.shape and before[one.buffer] != after[one.buffer]
        ]
        grid = "x".join(map(str, run.launch.grid))
        settings = f"{self.settings()}, grid {grid}"
        self.keep(ROWS, name, self.count, self.label, buffers, rows=self.rows, settings=settings)

    def tried(self, name: str, config: Any, trial: Trial, reason: str) -> None:
        """Keep a trial of an autotuner, or of other settings."""
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
        self.keep(CONFIGS, name, tuners.tunings, label, [] if reason else buffers, reason=_last_line(reason))


def _last_line(text: str) -> str:
    """Return the last line of an error: a compiler's shows the source before it."""
    return text.strip().rpartition("\n")[2].strip()


bits = Bits()


def settings_of(kernel: Any) -> str:
    """Describe the constants and options of one of Triton's compiled kernels."""
    names = getattr(getattr(kernel.src, "fn", None), "arg_names", ())
    constants = getattr(kernel.src, "constants", None) or {}
    named = {names[path[0]]: value for path, value in constants.items() if len(path) == 1 and path[0] < len(names)}
    named |= {"num_warps": kernel.metadata.num_warps, "num_stages": kernel.metadata.num_stages}
    return ", ".join(f"{name}={value}" for name, value in named.items())


def begin_comparing(compared: Compared) -> ExitStack:
    """Begin to keep executions, until the stack is closed."""
    bits.compared = compared
    stack = ExitStack()
    if compared.configs or compared.settings:
        tuners.tried = bits.tried
    if compared.settings:
        from triton.runtime.jit import JITFunction

        stack.callback(Patch(JITFunction, "run", lambda original: _with_settings(compared, original)).undo)
    if compared.rows:
        atexit.register(_Rows(compared.rows).end)
    return stack


# --- other settings of a kernel ------------------------------------------------------------------


def _with_settings(compared: Compared, original: Callable[..., Any]) -> Callable[..., Any]:
    """Try a kernel with each combination of settings before its launch, as an autotuner does."""
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


# --- a function with fewer and more rows ---------------------------------------------------------


def _functions(frame: FrameType | None) -> Iterator[str]:
    """Name the user's functions above a launch, with their arguments that are tensors."""
    while frame is not None:
        if _is_users(frame):
            tensors = [name for name in _arguments(frame) if _is_tensor(frame.f_locals.get(name))]
            if tensors:
                yield f"{frame.f_code.co_name}({', '.join(tensors)})"
        frame = frame.f_back


def _is_users(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _LIBRARIES


def _arguments(frame: FrameType) -> tuple[str, ...]:
    code = frame.f_code
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


class _Call:
    """A call of a function, with copies of its tensors. count: launches before it."""

    def __init__(self, frame: FrameType) -> None:
        code, values = frame.f_code, frame.f_locals
        self.frame, self.code, self.count = frame, code, bits.count
        self.positional = list(_arguments(frame)[: code.co_argcount])
        self.arguments = {name: _copy(values[name]) for name in _arguments(frame)}
        rest = list(code.co_varnames[len(_arguments(frame)) :])
        self.further = tuple(map(_copy, values[rest.pop(0)])) if code.co_flags & 0x04 else ()  # CO_VARARGS
        self.named = {name: _copy(value) for name, value in values[rest[0]].items()} if code.co_flags & 0x08 else {}

    def again(self, arguments: Mapping[str, Any]) -> Any:
        import gc
        from types import FunctionType

        function = next(
            f for f in gc.get_referrers(self.code) if isinstance(f, FunctionType) and f.__code__ is self.code
        )
        given = {**self.arguments, **arguments}
        positional = [given.pop(name) for name in self.positional]
        return function(*positional, *self.further, **given, **self.named)


def _copy(value: Any) -> Any:
    return value.detach().clone() if _is_tensor(value) else value


class _Rows:
    """Finds the call of the user's outermost function that has these arguments and launches kernels, and of several
    calls that with the most rows; at the program's end it calls the function again with other numbers of rows."""

    def __init__(self, text: str) -> None:
        words = [re.fullmatch(r"(?:(\w+)\.)?(\w+)(?::(\d+))?", word) for word in text.split(",")]
        self.function = next((word[1] for word in words if word and word[1]), None)
        self.dims = {word[2]: int(word[3] or 0) for word in words if word}
        self.first, self.text = next(iter(self.dims)), text
        self.call: _Call | None = None
        self.open: _Call | None = None
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and self.open is None and self.first in frame.f_code.co_varnames and self._fits(frame):
            self.open = _Call(frame)
        elif event == "return" and self.open is not None and frame is self.open.frame:
            call, self.open = self.open, None
            if bits.count > call.count and (self.call is None or self._rows(call) > self._rows(self.call)):
                self.call = call

    def _fits(self, frame: FrameType) -> bool:
        named = self.function in (None, frame.f_code.co_name) and set(self.dims) <= set(_arguments(frame))
        return named and _is_users(frame) and all(_is_tensor(frame.f_locals.get(name)) for name in self.dims)

    def _rows(self, call: _Call) -> int:
        shape = call.arguments[self.first].shape
        return int(shape[self.dims[self.first]]) if self.dims[self.first] < len(shape) else 0

    def end(self) -> None:
        """Call the function again. What cannot be tried is kept with its reason."""
        sys.setprofile(None)
        call = self.call
        if call is None:
            seen = ", ".join(bits.launched_by) or "none"
            bits.keep(
                REFUSED,
                "",
                0,
                "",
                [],
                reason=f"no function with a tensor argument of this name launches a kernel; those that launch: {seen}",
            )
            return
        name = call.code.co_name
        for argument, dim in self.dims.items():
            shape = tuple(call.arguments[argument].shape)
            if dim >= len(shape):
                why = f"argument {argument} of {name} has no dimension {dim}: its shape is {list(shape)}"
                bits.keep(REFUSED, name, 0, "", [], reason=why)
                return
        call.frame = None  # type: ignore[assignment]
        for rows in sorted({*BATCHES, self._rows(call)}):
            self._try(call, name, rows)
        bits.label = ""

    def _try(self, call: _Call, name: str, rows: int) -> None:
        import torch

        bits.label, bits.rows, bits.count = f"{rows} rows" if rows > 1 else "1 row", rows, 0
        torch.manual_seed(0)
        try:
            with torch.no_grad():
                arguments = {one: _copy(value) for one, value in call.arguments.items()}
                for one, dim in self.dims.items():
                    value = call.arguments[one]
                    numbers = torch.arange(rows) % value.shape[dim]
                    arguments[one] = value.index_select(dim, numbers.to(value.device)).contiguous()
                before = {one: _bytes(value) for one, value in arguments.items() if _is_tensor(value)}
                returned = call.again(arguments)
                stored = [("result", value) for value in _tensors(returned)]
                stored += [(one, arguments[one]) for one in before if _bytes(arguments[one]) != before[one]]
                buffers = [
                    {"name": one, "dtype": str(value.dtype).removeprefix("torch."), "data": _bytes(value), "offset": 0,
                     "shape": tuple(value.shape), "stride": None}
                    for one, value in stored
                ]  # fmt: skip
        except Exception as error:
            say(f"tritonhook: {name} with {rows} rows: {error}")
            bits.keep(RESULT, name, 0, bits.label, [], rows=rows, reason=_last_line(str(error)) or type(error).__name__)
            return
        bits.keep(RESULT, name, 0, bits.label, buffers, rows=rows)


def _bytes(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _tensors(value: Any) -> Iterator[Any]:
    if _is_tensor(value):
        yield value
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors(one)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))
