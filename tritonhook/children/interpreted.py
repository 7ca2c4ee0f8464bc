"""Execute one launch of a Triton kernel by Triton's own interpreter: the kernel's result without any compiler.

The interpreter runs in a forked process, because it changes triton.language, and because a wrong address kills the
process. It gets the recorded arguments of the launch, with their types, and copies of the buffers.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from tritonhook.capture.launches.contents import FLOATS
from tritonhook.capture.launches.record import Descriptor, Launch, Pointer, Scalar
from tritonhook.emulate.launch import names_of
from tritonhook.emulate.numbers import convert
from tritonhook.errors import NotUnderstood

_LIMIT_S = 60.0
# Bytes that fill undefined values, in two attempts. As floats: large numbers, then NaN. As integers: the byte 123
# repeated, then -1.
_POISONS = 0x7B, 0xFF
_MOST_PLACES = 6
_FP8 = {"fp8e4nv": "e4m3", "fp8e5": "e5m2"}  # name in emulate/numbers.py by Triton's name


@dataclass(frozen=True, slots=True)
class Interpreted:
    """The result of a launch. contents: contents of each buffer after it. nudged: contents after two further
    executions, whose floating-point inputs were changed by 2 ulp with opposite signs; they show the effect of rounding.
    undefined: loads whose undefined values (mask false, no `other`) change the result."""

    contents: tuple[bytes, ...]
    nudged: tuple[tuple[bytes, ...], ...]
    undefined: tuple[str, ...]


def interpret(source: Any, launch: Launch, contents: Sequence[bytes]) -> Interpreted:
    """Execute a launch of a compiled kernel. source: Triton's source object of the kernel. contents: contents of the
    buffers before the launch. Raises NotUnderstood with the reason if the interpreter cannot execute it."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process: Any = context.Process(target=_in_child, args=(send, source, launch, contents), daemon=True)
    done: Any = None
    began = time.monotonic()
    try:
        process.start()
        send.close()
        done = receive.recv() if receive.poll(_LIMIT_S) else f"not finished in {_LIMIT_S:g} s"
        # The first result lists all loads with undefined values. A second result, after at most 8 more runs with other
        # values, lists the loads that change the result. It may never come: with other values a kernel may not end.
        if isinstance(done, Interpreted) and done.undefined:
            longer_s = 10 * (time.monotonic() - began)  # the first result took 3 runs
            done = receive.recv() if receive.poll(max(_LIMIT_S, longer_s)) else done
    except EOFError:
        done = done or "its process died: the kernel may access memory outside of its arguments"
    except Exception as error:  # e.g. no further process can be started
        done = f"{type(error).__name__}: {error}"
    finally:
        if process.pid is not None:
            process.kill()
            process.join()
    if isinstance(done, Interpreted):
        return done
    raise NotUnderstood("interpreter", why=str(done))


def _in_child(send: Any, source: Any, launch: Launch, contents: Sequence[bytes]) -> None:
    sys.setprofile(None)
    sys.stdout = sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115  the process ends soon
    try:
        with np.errstate(all="ignore"):
            one = _Interpreter(source, launch)
            send.send(done := one.done(contents))
            if done.undefined:
                send.send(replace(done, undefined=one.used(contents, done)))
    except BaseException as error:
        send.send(_reason(error))


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1]}" if lines else type(error).__name__


class _Interpreter:
    """One launch in the interpreter. memory: copies of the buffers. places: loads with a false mask and no `other`, as
    argument by source line. poison: byte that fills their undefined values; None for zeros, the values on NVIDIA GPUs.
    poisoned: source lines of the loads to fill with `poison`."""

    def __init__(self, source: Any, launch: Launch) -> None:
        from triton.runtime import interpreter
        from triton.runtime.jit import JITFunction

        if type(getattr(source, "fn", None)) is not JITFunction:
            raise TypeError("the kernel is not a Python function with @triton.jit")
        self.own, self.function, self.launch = interpreter, source.fn, launch
        self.memory: list[Any] = [np.zeros(max(buffer.size, 1), np.uint8) for buffer in launch.buffers]
        spans = sorted((one.ctypes.data, one.ctypes.data + len(one), n) for n, one in enumerate(self.memory))
        self.begins, self.ends, self.numbers = (np.array(column, np.uint64) for column in zip(*spans, strict=True))
        self.arguments = self._arguments(source)
        self.places: dict[str, str] = {}
        self.poison: int | None = None
        self.poisoned: set[str] = set()
        self.patched: set[int] = set()
        builder: Any = interpreter.InterpreterBuilder
        for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_dot"):
            setattr(builder, name, self._in_float32(getattr(builder, name)))
        builder.cast_impl = self._cast(builder.cast_impl)
        builder.create_fp_to_fp = self._cast_of_fp8(builder.create_fp_to_fp)
        builder.get_bf16 = lambda builder, value: self._narrowed(builder.get_fp32(value))
        for kind in (interpreter.ReduceOps, interpreter.ScanOps):
            kind.apply_impl = self._reduced_in_float32(kind.apply_impl)
        builder.create_atomic_rmw = self._atomic(builder.create_atomic_rmw)
        builder.create_masked_load = partial(self._load, builder.create_masked_load)
        builder.create_masked_store = partial(self._store, builder.create_masked_store)
        from triton.language.extra import libdevice

        vars(libdevice)["_of_numpy"] = self._of_numpy
        # The functions of libdevice are empty. Their code is replaced, because programs have imported them by name.
        for name, one in list(vars(libdevice).items()):
            if isinstance(one, FunctionType) and name[0] != "_":
                exec(f"def {name}(*given): return _of_numpy({name!r}, *given)", vars(libdevice))
                one.__code__ = vars(libdevice)[name].__code__
        nested: Any = lambda function, *given, **named: self._rewritten(function)(*given, **named)  # noqa: E731
        setattr(JITFunction, "__call__", nested)  # noqa: B010

    def _arguments(self, source: Any) -> dict[str, Any]:
        from triton import language

        of_source = [one for one in self.launch.parameters if isinstance(one, (Pointer, Scalar, Descriptor))]
        known = {one.name: one for one in of_source}

        def made(name: str, kind: Any, path: tuple[int, ...]) -> Any:
            if isinstance(kind, tuple):
                return tuple(made(f"{name}.{at}", one, (*path, at)) for at, one in enumerate(kind))
            one = known.get(name)
            if one is None and path in source.constants:
                value = source.constants[path]
                return value if path[0] in self.function.constexprs else self.own._implicit_cvt(value)
            if one is None:
                raise TypeError(f"argument {name} is {kind}")
            own = language.str_to_ty(kind, None)
            if isinstance(one, Descriptor):
                return self._descriptor(one, own)
            if isinstance(one, Scalar):
                data = np.array([one.value], self.own._get_np_dtype(own))
            else:
                address = 0 if one.buffer is None else self.memory[one.buffer].ctypes.data + one.offset
                data = np.array([address], np.uint64)
            return language.tensor(self.own.TensorHandle(data, own), own)

        names = self.function.arg_names
        return {name: made(name, source.signature[name], (number,)) for number, name in enumerate(names)}

    def _descriptor(self, one: Descriptor, own: Any) -> Any:
        """Make a descriptor in the interpreter, as if the kernel had made it, with the fields that the host encoded."""
        from triton import language
        from triton.language.semantic import TritonSemantic

        element, tiling, given = own.block_type.scalar, one.tiling, self.own._implicit_cvt
        kind = language.pointer_type(element)
        data = np.array([self.memory[one.buffer].ctypes.data + one.offset], np.uint64)
        strides = [given(stride * 8 // tiling.bits) for stride in reversed(tiling.strides)]
        return TritonSemantic(self.own.interpreter_builder).make_tensor_descriptor(
            language.tensor(self.own.TensorHandle(data, kind), kind),
            [given(length) for length in reversed(tiling.shape)],
            [*strides, language.constexpr(1)],
            [language.constexpr(length) for length in own.block_type.shape],
            "nan" if tiling.fill else "zero",
        )

    def done(self, contents: Sequence[bytes]) -> Interpreted:
        stored, buffers = self._run(contents), self.launch.buffers
        places = tuple(f"{argument} at {place}" for place, argument in self.places.items())
        nudged = (
            self._run([_nudged(data, one.dtype, ulps) for data, one in zip(contents, buffers, strict=True)])
            for ulps in (2, -2)
        )
        return Interpreted(stored, tuple(nudged), places)

    def used(self, contents: Sequence[bytes], done: Interpreted) -> tuple[str, ...]:
        """Find the loads whose undefined values change the result, or make the kernel fail. Returns "argument at line"
        of each. done: the result with zeros."""
        places = dict(self.places)
        for self.poison in _POISONS:
            if self._differs(contents, set(places), done):
                used = [one for one in list(places)[:_MOST_PLACES] if self._differs(contents, {one}, done)]
                return tuple(f"{places[one]} at {one}" for one in used or places)
        return ()

    def _differs(self, contents: Sequence[bytes], poisoned: set[str], done: Interpreted) -> bool:
        self.poisoned = poisoned
        try:
            return self._run(contents) != done.contents
        except Exception:  # e.g. a wrong address computed from an undefined value
            return True

    def _run(self, contents: Sequence[bytes]) -> tuple[bytes, ...]:
        for one, data in zip(self.memory, contents, strict=True):
            one[: len(data)] = np.frombuffer(data, np.uint8)
        function, grid = self._rewritten(self.function), self.launch.grid
        grid = grid[0] // self.launch.cluster[0], *grid[1:]
        builder = self.own.interpreter_builder
        builder.set_grid_dim(*grid)
        for index in product(*map(range, grid)):
            builder.set_grid_idx(*index)
            function(**self.arguments)
        return tuple(one[: len(data)].tobytes() for one, data in zip(self.memory, contents, strict=True))

    def _rewritten(self, function: Any) -> Any:
        """Convert a function for the interpreter. Also patch triton.language in the function's module, once."""
        if id(function.fn.__globals__) not in self.patched:
            self.patched.add(id(function.fn.__globals__))
            self.own._patch_lang(function.fn)
        return self.own.InterpretedFunction(function.fn).rewrite()

    # Triton 3.6's interpreter stores bfloat16 as uint16 and computes with these integers. So its functions are wrapped
    # to compute in float32.

    def _in_float32(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def calculated(builder: Any, *given: Any) -> Any:
            wide = [self._widened(one) for one in given]
            handles = [one for one in given if isinstance(one, self.own.TensorHandle)]
            result = original(builder, *wide)
            return self._narrowed(result) if all(map(_is_narrow, handles)) else result

        return calculated

    def _cast(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap casts: between bfloat16 and a type other than float32, cast to float32 first. Refuse fp8."""
        from triton.language import float32

        def cast(builder: Any, source: Any, target: Any) -> Any:
            kinds = source.dtype.scalar, target.scalar
            if any(kind.is_fp8() for kind in kinds):
                raise NotImplementedError(f"a cast from {kinds[0]} to {kinds[1]} is not supported")
            if any(kind.is_bf16() for kind in kinds) and float32 not in kinds and kinds[0] != kinds[1]:
                source = original(builder, source, float32)
            return original(builder, source, target)

        return cast

    def _cast_of_fp8(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap casts of fp8: round to nearest and saturate, as the GPU does."""
        from triton.language import float32

        def cast(builder: Any, source: Any, target: Any, mode: Any) -> Any:
            kinds = source.dtype.scalar, target.scalar
            if not any(kind.is_fp8() for kind in kinds):
                return original(builder, source, target, mode)
            if any(kind.is_fp8() and kind.name not in _FP8 for kind in kinds):
                raise NotImplementedError(f"a cast from {kinds[0]} to {kinds[1]} is not supported")
            if kinds[0].is_fp8():
                bits = convert(source.data.view(np.uint8).astype(np.uint32), _FP8[kinds[0].name], "f32")
                source = self.own.TensorHandle(bits.astype(np.uint32).view(np.float32), float32)
            if not kinds[1].is_fp8():
                return builder.cast_impl(source, target)
            bits = builder.cast_impl(source, float32).data.view(np.uint32)
            codes = convert(bits, "f32", _FP8[kinds[1].name], finite=True)
            return self.own.TensorHandle(codes.astype(np.uint8), kinds[1])

        return cast

    def _reduced_in_float32(self, original: Callable[..., Any]) -> Callable[..., Any]:
        from triton.language import tensor

        def reduced(reduction: Any, given: Any) -> Any:
            if not any(_is_narrow(one.handle) for one in given):
                return original(reduction, given)
            made = original(reduction, tuple(converted(self._widened, one) for one in given))
            several = made if isinstance(made, (list, tuple)) else (made,)
            return [converted(self._narrowed, one) for one in several]

        def converted(how: Callable[[Any], Any], one: Any) -> Any:
            handle = how(one.handle)
            return tensor(handle, one.type.with_element_ty(handle.dtype) if one.type.is_block() else handle.dtype)

        return reduced

    def _of_numpy(self, name: str, *given: Any) -> Any:
        from triton.language import tensor

        builder, function = self.own.interpreter_builder, getattr(np, name, None)
        if name == "rsqrt":
            handle = builder.create_rsqrt(given[0].handle)
        elif isinstance(function, np.ufunc) and function.nin == len(given) and given[0].dtype.is_standard_floating():
            handle = self.own.TensorHandle(function(*(one.handle.data for one in given)), given[0].handle.dtype)
        else:
            raise NotImplementedError(f"{name} of libdevice")
        return tensor(handle, given[0].type)

    def _atomic(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def atomic(builder: Any, operation: Any, pointers: Any, value: Any, *rest: Any) -> Any:
            if _is_narrow(value):
                raise NotImplementedError(f"atomics of {value.dtype}")
            return original(builder, operation, pointers, value, *rest)

        return atomic

    def _widened(self, handle: Any) -> Any:
        from triton.language import float32

        return self.own.interpreter_builder.cast_impl(handle, float32) if _is_narrow(handle) else handle

    def _narrowed(self, handle: Any) -> Any:
        from triton.language import bfloat16

        return self.own.interpreter_builder.cast_impl(handle, bfloat16) if handle.data.dtype == np.float32 else handle

    def _load(self, original: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        self._check(pointers, mask, "read")
        if other is None and not np.asarray(mask.data).all():
            place = _place()
            self.places.setdefault(place, self._argument(pointers, mask))
            if self.poison is not None and place in self.poisoned:
                kind = pointers.get_element_ty()
                dtype = self.own._get_np_dtype(kind)
                values = np.full((*pointers.data.shape, dtype.itemsize), self.poison, np.uint8)
                values = values.view(dtype)[..., 0] if dtype != np.bool_ else np.ones(pointers.data.shape, np.bool_)
                other = self.own.TensorHandle(values, kind)
        return original(self.own.interpreter_builder, pointers, mask, other, *rest, **named)

    def _store(self, original: Any, pointers: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        self._check(pointers, mask, "write")
        return original(self.own.interpreter_builder, pointers, value, mask, *rest, **named)

    def _check(self, pointers: Any, mask: Any, what: str) -> None:
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        at = np.searchsorted(self.begins, addresses, "right").astype(np.int64) - 1
        if ((at < 0) | (addresses >= self.ends[at])).any():
            raise IndexError(f"{what} outside of all arguments at {_place()}")

    def _argument(self, pointers: Any, mask: Any) -> str:
        addresses = pointers.data[np.broadcast_to(mask.data, pointers.data.shape)]
        first = (addresses if addresses.size else pointers.data.reshape(-1))[0]
        number = int(self.numbers[max(int(np.searchsorted(self.begins, first, "right")) - 1, 0)])
        return names_of(self.launch)[number]


def _is_narrow(handle: Any) -> bool:
    kind = getattr(handle, "dtype", None)
    return kind is not None and hasattr(kind, "is_bf16") and kind.scalar.is_bf16() and handle.data.dtype == np.uint16


def _place() -> str:
    """Return "file:line" of the innermost function outside of Triton and this module."""
    import triton

    frame, own = sys._getframe(2), (f"{Path(triton.__file__).parent}{os.sep}", __file__)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"


def _nudged(data: bytes, dtype: str, ulps: int) -> bytes:
    """Change floating-point numbers by this many ulp, up or down at random. Zeros, tiny and huge numbers, infinity and
    NaN are not changed."""
    form = FLOATS.get(dtype)
    if form is None or len(data) % (form.bits // 8):
        return data
    bits = np.frombuffer(data, f"i{form.bits // 8}")
    size = bits & np.array(form.magnitude, bits.dtype)
    moved = bits + (ulps * (2 * np.random.default_rng(0).integers(0, 2, len(bits)) - 1)).astype(bits.dtype)
    kept = (size <= abs(ulps)) | (size >= form.first_not_finite - abs(ulps))
    return bytes(np.where(kept, bits, moved).tobytes())
