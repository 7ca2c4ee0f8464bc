"""Repeat a function of a program, or a launch, with fewer and more rows, for `verify --rows`.

A function is called again with slices of its tensor arguments. A launch outside of functions is repeated with a smaller
grid, if each CTA accesses only its own rows of the tensors. To check that, every memory access is recorded.
"""

from __future__ import annotations

import atexit
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from operator import attrgetter
from types import FrameType
from typing import Any

import numpy as np

from tritonhook._util.text import say
from tritonhook.capture.dry_run.gpu import REFUSED, RESULT, Compared
from tritonhook.capture.launches.record import DTYPE_BYTES, Pointer
from tritonhook.capture.patching import Patch
from tritonhook.children.bits import bits, last_line
from tritonhook.emulate.machine import Code, Group, Machine
from tritonhook.emulate.memory import Store
from tritonhook.emulate.ptx.kernel import Kernel
from tritonhook.emulate.run import Run, execute, load_ptx
from tritonhook.emulate.words import Array
from tritonhook.errors import UsageError

BATCHES = 1, 2, 7, 16, 64, 256
_LIBRARIES = {"torch", "triton", "numpy", "tritonhook", "runpy", "importlib"}


def begin_rows(compared: Compared, stack: ExitStack) -> None:
    """Begin to look for the function or launch to repeat, until `stack` is closed. It is repeated at the program's
    end."""
    from triton.runtime.jit import JITFunction

    rows = _Rows(compared.rows)
    bits.seen = rows.seen
    stack.callback(Patch(JITFunction, "run", rows.running).undo)
    atexit.register(rows.end)


def _seed() -> None:
    """Set the seeds of all random generators, so that each repetition draws the same numbers."""
    random.seed(0)
    for name, draw in (("numpy", "random.seed"), ("torch", "manual_seed")):
        if name in sys.modules:
            attrgetter(draw)(sys.modules[name])(0)


def _functions(frame: FrameType | None) -> Iterator[str]:
    """Yield the user's functions in the call stack that have tensor arguments, e.g. "f(x, w)"."""
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
    """A call of a function, with copies of its tensors. count: number of launches before it. dims: dimension of the
    rows, by argument. grad: True if autograd recorded the call."""

    def __init__(self, frame: FrameType, dims: Mapping[str, int]) -> None:
        import torch

        self.grad = torch.is_grad_enabled()
        code, values = frame.f_code, frame.f_locals
        self.frame, self.code, self.count, self.name, self.dims = frame, code, bits.count, code.co_name, dims
        self.positional = list(_arguments(frame)[: code.co_argcount])
        self.arguments = {name: _copy(values[name]) for name in _arguments(frame)}
        rest = list(code.co_varnames[len(_arguments(frame)) :])
        self.further = tuple(map(_copy, values[rest.pop(0)])) if code.co_flags & 0x04 else ()  # CO_VARARGS
        self.named = {name: _copy(value) for name, value in values[rest[0]].items()} if code.co_flags & 0x08 else {}

    @property
    def rows(self) -> int:
        """The number of rows in the call; 0 if the tensor has no such dimension."""
        name, dim = next(iter(self.dims.items()))
        shape = self.arguments[name].shape
        return int(shape[dim]) if dim < len(shape) else 0

    @property
    def tried(self) -> set[int]:
        return {*BATCHES, self.rows}

    def sliced(self, name: str, dim: int, rows: int) -> Any:
        """Return an argument with this number of rows. If it has fewer, its rows are repeated."""
        import torch

        value = self.arguments[name]
        numbers = torch.arange(rows) % value.shape[dim]
        made = value.detach().index_select(dim, numbers.to(value.device)).contiguous()
        return made.requires_grad_(value.requires_grad)

    def again(self, arguments: Mapping[str, Any], rows: int) -> Any:
        """Call the function again, with these arguments instead of its own."""
        import gc
        from types import FunctionType

        function = next(
            f for f in gc.get_referrers(self.code) if isinstance(f, FunctionType) and f.__code__ is self.code
        )
        given = {**self.arguments, **arguments}
        positional = [given.pop(name) for name in self.positional]
        return function(*positional, *self.further, **given, **self.named)


class _Launch:
    """A launch in which the CTAs at position `index` along one axis of the grid access only the rows from `step` *
    `index` to `step` * (`index` + 1) - 1. dims: dimension of the rows, by argument. counts: names of arguments that are
    the number of rows."""

    def __init__(self, called: tuple[Any, ...], kernel: Kernel, run: Run, before: Sequence[bytes], dims: Any) -> None:
        """Execute the launch once and record its accesses. Raises UsageError if they do not show that each CTA accesses
        only its own rows."""
        self.grad, (self.function, given, self.named) = False, called
        self.arguments = dict(zip(self.function.arg_names, given, strict=False))
        self.arguments |= {name: self.named[name] for name in self.function.arg_names if name in self.named}
        self.arguments = {name: _copy(value) for name, value in self.arguments.items()}
        self.name, (first, dim) = self.function.__name__, next(iter(dims.items()))
        tensors = {one.name: one for one in run.launch.parameters if isinstance(one, Pointer) and one.shape}
        if first not in tensors or len(dims) > 1:
            raise UsageError(f"{self.name}: give exactly one of its tensor arguments: {', '.join(tensors)}")
        shape = tensors[first].shape or ()
        if dim >= len(shape):
            raise UsageError(f"argument {first} of {self.name} has no dimension {dim}: its shape is {list(shape)}")
        self.rows, cluster = shape[dim], run.launch.cluster
        self.grid = tuple(size // own for size, own in zip(run.launch.grid, cluster, strict=True))
        likely = {name: _outermost(one, self.rows) for name, one in tensors.items()}
        watcher = _Touched({tensors[name]: own for name, own in likely.items() if own is not None}, run)
        loaded = load_ptx(kernel, run, before)
        watcher.begins = [one.begin for one in loaded.placed.buffers]
        execute(loaded, run, watcher)
        numbers = [value for value in self.arguments.values() if type(value) is int]
        axes = [
            (axis, step)
            for axis, size in enumerate(self.grid)
            for step in sorted({1, *numbers})
            if size > 1 and step > 0 and -(-self.rows // step) == size and watcher.keeps(first, axis, step)
        ]
        if likely[first] != dim or len(axes) != 1:
            why = f"dimension {dim} of {first} is not its outermost dimension in memory"
            if likely[first] == dim:
                grid = "x".join(map(str, self.grid))
                why = f"no axis of the grid {grid} can be shown to divide the {self.rows} rows of {first}"
            raise UsageError(f"{self.name}: {why}; launch the kernel in a function with the argument {first}")
        ((self.axis, self.step),) = axes
        self.dims = {first: dim} | {
            n: own for n, own in likely.items() if own is not None and watcher.keeps(n, *axes[0])
        }
        sizes = {
            size for n, one in tensors.items() for at, size in enumerate(one.shape or ()) if self.dims.get(n) != at
        }
        strides = {stride for one in tensors.values() for stride in one.stride or ()}
        self.counts = [name for name, value in self.arguments.items() if type(value) is int and value == self.rows]
        if self.counts and (self.rows in sizes | strides or set(self.counts) & self._constants()):
            raise UsageError(
                f"{self.name}: it is unclear whether {', '.join(self.counts)} is the number of rows ({self.rows}) "
                "or another size"
            )

    def _constants(self) -> set[str]:
        return {self.function.arg_names[number] for number in self.function.constexprs}

    @property
    def tried(self) -> set[int]:
        return {rows for rows in BATCHES if rows < self.rows} | {self.rows}

    def sliced(self, name: str, dim: int, rows: int) -> Any:
        return _copy(self.arguments[name].narrow(dim, 0, rows))

    def again(self, arguments: Mapping[str, Any], rows: int) -> None:
        """Launch the kernel again with a smaller grid, with these arguments instead of its own."""
        own = {**self.named, **arguments} | dict.fromkeys(self.counts, rows)
        grid = tuple(-(-rows // self.step) if axis == self.axis else size for axis, size in enumerate(self.grid))
        self.function.run(**own, grid=grid, warmup=False)


def _outermost(one: Pointer, rows: int) -> int | None:
    """Return the dimension whose size is `rows`. None if several dimensions have this size, or if the dimension is not
    the outermost in memory."""
    shape, stride = one.shape or (), one.stride or ()
    if shape.count(rows) != 1:
        return None
    dim = shape.index(rows)
    inside = sum((size - 1) * own for at, (size, own) in enumerate(zip(shape, stride, strict=True)) if at != dim)
    return dim if inside < stride[dim] else None


class _Touched:
    """Observer of the emulator that records which rows of tensors each CTA accesses. tensors: dimension of the rows, by
    tensor. begins: address of each buffer in the emulator's global memory. pairs: (row << 32 | CTA) of each access, by
    argument."""

    def __init__(self, tensors: Mapping[Pointer, int], run: Run) -> None:
        self.tensors, self.grid = tensors, run.launch.grid
        self.begins: list[int] = []
        self.pairs: dict[str, set[int]] = {one.name: set() for one in tensors}

    def begin(self, machine: Machine, code: Code) -> Code:
        ctas, padded = np.array(machine.geometry.ctas), machine.geometry.padded_threads

        def seen(group: Group, store: Store, index: Array, _: int, how: str) -> None:
            if store is not machine.memory.global_:
                return
            at, threads = index[group.active], np.flatnonzero(group.active) + group.s.start
            for one, dim in self.tensors.items():
                begin = self.begins[one.buffer or 0] + one.offset
                size = DTYPE_BYTES[one.dtype or "uint8"] * (one.stride or (1,))[dim]
                rows = (at - begin) // size
                hit = (rows >= 0) & (rows < (one.shape or (1,))[dim])
                self.pairs[one.name] |= set(np.unique(rows[hit] << 32 | ctas[threads[hit] // padded]).tolist())

        machine.memory.observe = seen
        return code

    def end(self, machine: Machine) -> None:
        pass

    def keeps(self, name: str, axis: int, step: int) -> bool:
        """Check whether each CTA accesses only the rows of a tensor that belong to its position along the axis."""
        pairs = np.array(list(self.pairs.get(name, ())), np.int64)
        index = (pairs & 0xFFFF_FFFF) // int(np.prod(self.grid[:axis])) % self.grid[axis]
        return bool(len(pairs) and ((pairs >> 32) // step == index).all())


def _copy(value: Any) -> Any:
    """Copy a tensor, with its strides; return any other value unchanged."""
    if not _is_tensor(value):
        return value
    own, is_parameter = value.detach(), value.requires_grad and value.is_leaf
    made = own.clone() if 0 in own.stride() else own.new_empty_strided(own.shape, own.stride()).copy_(own)
    return made.requires_grad_(is_parameter)


class _Rows:
    """Chooses a function call or a launch, and repeats it with other numbers of rows at the program's end.

    It chooses the user's outermost function that has the requested arguments and launches kernels; if that function is
    called several times, it chooses the call with the most rows. Without such a function, it chooses the first launch
    with these arguments. launched_by: functions that launch kernels, with their tensor arguments. why: reason why the
    launch cannot be repeated.
    """

    def __init__(self, text: str) -> None:
        words = [re.fullmatch(r"(?:(\w+)\.)?(\w+)(?::(\d+))?", word) for word in text.split(",")]
        self.function = next((word[1] for word in words if word and word[1]), None)
        self.dims = {word[2]: int(word[3] or 0) for word in words if word}
        self.first = next(iter(self.dims))
        self.call: _Call | _Launch | None = None
        self.open: _Call | None = None
        self.launched_by: dict[str, None] = {}
        self.launch: _Launch | None = None
        self.called: tuple[Any, ...] = ()
        self.why = ""
        sys.setprofile(self._see)

    def _see(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "call" and self.open is None and self.first in frame.f_code.co_varnames and self._fits(frame):
            self.open = _Call(frame, self.dims)
        elif event == "return" and self.open is not None and frame is self.open.frame:
            call, self.open = self.open, None
            if bits.count > call.count and (self.call is None or call.rows > self.call.rows):
                self.call = call

    def running(self, original: Any) -> Any:
        """Wrap JITFunction.run: store the function and the arguments of the current launch."""

        def run(function: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> Any:
            self.called = function, given, named
            return original(function, *given, grid=grid, warmup=warmup, **named)

        return run

    def seen(self, name: str, kernel: Kernel, run: Run, before: Sequence[bytes]) -> None:
        """Check whether a launch, which was executed, can be repeated. before: contents of its buffers."""
        self.launched_by |= dict.fromkeys(_functions(sys._getframe()))
        wanted = self.launch is None and not self.why and self.open is None and self.function in (None, name)
        if wanted and self.called and self.first in self.called[0].arg_names:
            try:
                self.launch = _Launch(self.called, kernel, run, before, self.dims)
            except UsageError as error:
                self.why = str(error)

    def _fits(self, frame: FrameType) -> bool:
        named = self.function in (None, frame.f_code.co_name) and set(self.dims) <= set(_arguments(frame))
        return named and _is_users(frame) and all(_is_tensor(frame.f_locals.get(name)) for name in self.dims)

    def end(self) -> None:
        """Repeat the call or launch with each number of rows. If that is impossible, write the reason."""
        sys.setprofile(None)
        call = self.call = self.call or self.launch
        if call is None:
            seen = ", ".join(self.launched_by) or "none"
            why = "no function with a tensor argument of this name launches a kernel; functions that launch one"
            bits.keep(REFUSED, "", 0, "", [], reason=self.why or f"{why}: {seen}")
            return
        for argument, dim in call.dims.items():
            shape = tuple(call.arguments[argument].shape)
            if dim >= len(shape):
                why = f"argument {argument} of {call.name} has no dimension {dim}: its shape is {list(shape)}"
                bits.keep(REFUSED, call.name, 0, "", [], reason=why)
                return
        if isinstance(call, _Call):
            call.frame = None  # type: ignore[assignment]
        for rows in (*sorted(call.tried), min(call.tried)):  # the smallest number twice, to see if results repeat
            self._try(call, rows)
        bits.label = ""

    def _try(self, call: _Call | _Launch, rows: int) -> None:
        import torch
        from torch.utils._pytree import tree_leaves

        bits.label, bits.rows, bits.count = f"{rows} rows" if rows > 1 else "1 row", rows, 0
        _seed()
        try:
            with torch.set_grad_enabled(call.grad):
                arguments = {one: _copy(value) for one, value in call.arguments.items()}
                arguments |= {one: call.sliced(one, dim, rows) for one, dim in call.dims.items()}
                before = {one: _bytes(value) for one, value in arguments.items() if _is_tensor(value)}
                returned = call.again(arguments, rows)
                stored = [("result", value) for value in tree_leaves(returned) if _is_tensor(value)]
                stored += [(one, arguments[one]) for one in before if _bytes(arguments[one]) != before[one]]
                buffers = [
                    {"name": one, "dtype": str(value.dtype).removeprefix("torch."), "data": _bytes(value), "offset": 0,
                     "shape": tuple(value.shape), "stride": None}
                    for one, value in stored
                ]  # fmt: skip
        except Exception as error:
            say(f"tritonhook: {call.name} with {rows} rows: {error}")
            bits.keep(
                RESULT, call.name, 0, bits.label, [], rows=rows, reason=last_line(str(error)) or type(error).__name__
            )
            return
        bits.keep(RESULT, call.name, 0, bits.label, buffers, rows=rows)


def _bytes(tensor: Any) -> bytes:
    import torch

    return bytes(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
