"""Marks: the GPU memory before and after an event. Events are the load and the first launch of each Triton kernel, and
the first calls of torch's operators. Triton's hooks and a torch dispatch mode record marks during a watch (watcher.py).

torch loads its kernels, cuBLAS and cuDNN when an operator first needs them. Their memory is outside torch's allocator.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tritonhook._util.imports import AfterImport
from tritonhook.capture.patching import Patch
from tritonhook.memory.timeline import Mark, MarkKind, Reading

if TYPE_CHECKING:
    from tritonhook.memory.watcher import Devices

_MOST_KEYS = 64  # most shapes of one operator that are marked; then calls are distinguished by types only


@dataclass(slots=True)
class _Open:
    """A mark that has begun but not ended. inside: the readings before and after each nested mark."""

    began: int
    kind: MarkKind
    before: Reading | None
    inside: list[tuple[Reading | None, Reading | None]] = field(default_factory=list)


class Marks:
    """Records the marks of a watch, on the GPU of the current context. now: returns nanoseconds since the watch
    began."""

    def __init__(self, devices: Devices, now: Callable[[], int], note: Callable[[str], None]) -> None:
        self._devices = devices
        self._now = now
        self.note = note
        self._open: dict[int, list[_Open]] = {}  # open marks of each thread, the innermost last

    def begin(self, kind: MarkKind, stream: int = 0) -> None:
        with self._guarded():
            self._devices.current(self._devices.is_capturing(stream))
            began = _Open(self._now(), kind, self._devices.reading(stream))
            self._open.setdefault(threading.get_ident(), []).append(began)

    def end(self, kind: MarkKind, name: str, stream: int = 0) -> None:
        with self._guarded():
            there = self._open.get(threading.get_ident(), [])
            at = next((n for n in reversed(range(len(there))) if there[n].kind == kind), len(there))
            mark = there[at] if at < len(there) else _Open(self._now(), kind, None)
            del there[at:]  # also nested marks, whose calls ended with an exception
            after = self._devices.reading(stream)
            if there:
                there[-1].inside.append((mark.before, after))
            note, capturing = None, self._devices.is_capturing(stream)
            if mark.before is None or after is None:
                note = "the CUDA context could not be read"
                if capturing:
                    note = "no figures during graph capture, when the driver is not called"
                elif kind == "operator" and after is not None:
                    note = "this call created the context"
            if (device := self._devices.current(capturing)) is not None:
                for inner in mark.inside:
                    after = _without(after, *inner)
                device.marks.append(Mark(mark.began, kind, name, mark.before, after, note))

    def is_capturing(self) -> bool:
        return self._devices.is_capturing(0)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turn an exception into a note, so that it does not reach the user's call."""
        try:
            yield
        except Exception as error:
            self.note(f"a kernel could not be watched: {type(error).__name__}: {error}")


def _without(reading: Reading | None, before: Reading | None, after: Reading | None) -> Reading | None:
    """Subtract the change between two readings from a later reading."""
    if reading is None or before is None or after is None:
        return reading

    def less(name: str) -> int | None:
        late, a, b = (getattr(one, name) for one in (reading, before, after))
        return late if late is None or a is None or b is None else int(late - (b - a))

    return Reading(*map(less, Reading.__slots__))


# --- Triton's kernels ----------------------------------------------------------------------------


class TritonHooks:
    """Marks each Triton kernel's load and first launch. runtime: the object with the hooks; None:
    `triton.knobs.runtime`."""

    def __init__(self, runtime: Any, marks: Marks) -> None:
        self._runtime = runtime
        self._marks = marks
        self._undo = ExitStack()
        self._launched: set[object] = set()

    def attach(self) -> None:
        """Add the hooks; hooks of other tools stay. If triton is not imported yet, a note is recorded instead, since
        the watch must not import it."""
        runtime = self._runtime
        if runtime is None:
            if "triton" not in sys.modules:
                self._marks.note("triton was not imported when the watch began, so no kernel is named")
                return
            from triton import knobs

            runtime = knobs.runtime
        for name, hook in (
            ("kernel_load_start_hook", lambda *_: self._marks.begin("load")),
            ("kernel_load_end_hook", lambda module, function, name, *_: self._marks.end("load", name)),
            ("launch_enter_hook", self._launch_starts),
            ("launch_exit_hook", self._launch_ends),
        ):
            self._undo.callback(_chain(runtime, name, hook))

    def detach(self) -> None:
        self._undo.close()

    def _launch_starts(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)  # LazyDict.get() would run the user's own functions
        if data["function"] not in self._launched:
            self._marks.begin("launch", data.get("stream") or 0)

    def _launch_ends(self, metadata: Any) -> None:
        data = getattr(metadata, "data", metadata)
        if data["function"] not in self._launched:
            self._launched.add(data["function"])
            self._marks.end("launch", str(data["name"]), data.get("stream") or 0)


def _chain(runtime: Any, name: str, hook: Callable[..., None]) -> Callable[[], None]:
    """Add a hook to the existing ones; returns the function that removes it."""
    there = getattr(runtime, name)
    if hasattr(there, "add"):
        there.add(hook)
        return lambda: there.remove(hook)

    def calling_both(before: Callable[..., None] | None) -> Callable[..., None]:
        def both(*arguments: Any, **named: Any) -> None:
            if before is not None:
                before(*arguments, **named)
            hook(*arguments, **named)

        return both

    return Patch(runtime, name, calling_both).undo


# --- torch's operators ---------------------------------------------------------------------------


class TorchOperators:
    """Marks the first calls of torch's operators on a GPU, and of torch.cuda.Stream (torch makes 32 streams at once).
    An operator is marked once per thread, types, shapes and strides, as libraries choose other kernels for other
    shapes.

    Uses a torch dispatch mode, which calls each operator unchanged, in the thread that attaches it and in that thread's
    backward passes. torch.compile ignores the mode, because it is declared an "infra" mode.
    """

    def __init__(self, marks: Marks) -> None:
        self._marks = marks
        self._seen: set[object] = set()
        self._keys: Counter[object] = Counter()
        self._import = AfterImport("torch", self._push)
        self._patches: list[Patch] = []
        self._mode: Any = None
        self._alive = False

    def attach(self) -> None:
        """Push the mode now, or as soon as the program has imported torch."""
        self._import.begin()

    def detach(self) -> None:
        """Remove the mode. If another mode is above it on the stack, it stays on the stack and only calls operators."""
        self._import.end()
        self._alive = False
        while self._patches:
            self._patches.pop().undo()
        if self._mode is not None:
            stack = sys.modules["torch"]._C
            depth = stack._len_torch_dispatch_stack()
            if depth and stack._get_dispatch_stack_at(depth - 1) is self._mode:
                stack._pop_torch_dispatch_stack(None)
            self._mode = None

    def _push(self) -> None:
        try:
            mode = _make_mode(self._call)
            sys.modules["torch"]._C._push_on_torch_dispatch_stack(mode)
            self._mode, self._alive = mode, True
            stream = sys.modules["torch"].cuda.Stream
            if "__new__" in vars(stream):
                self._patches.append(Patch(stream, "__new__", self._of_streams))
        except Exception as error:  # torch is being imported, or has no modes
            self._marks.note(f"torch's operators are not watched: {type(error).__name__}: {error}")

    def _of_streams(self, original: Any) -> Any:
        def new(kind: Any, *rest: Any, **named: Any) -> Any:
            set_eval_frame = sys.modules["torch"]._C._dynamo.eval_frame.set_eval_frame
            compiler, key = set_eval_frame(None), ("torch.cuda.Stream", str(rest), str(named))
            try:
                with self._marked(key, "torch.cuda.Stream") if key not in self._seen else nullcontext():
                    return original(kind, *rest, **named)
            finally:
                set_eval_frame(compiler)

        _skip(new.__code__)
        return new

    @contextmanager
    def _marked(self, key: object, name: str) -> Iterator[None]:
        """Mark the call in the `with` block, unless a CUDA graph is being captured."""
        if watched := not self._marks.is_capturing():
            self._seen.add(key)
            self._marks.begin("operator")
        try:
            yield
        finally:
            if watched:
                self._marks.end("operator", name)

    def _call(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        set_eval_frame = sys.modules["torch"]._C._dynamo.eval_frame.set_eval_frame
        compiler = set_eval_frame(None)  # keep Dynamo from compiling this module's frames
        try:
            key = self._key(function, arguments, named) if self._alive else None
            if key is None or key in self._seen:
                set_eval_frame(compiler)
                return function(*arguments, **named)
            self._keys[function, threading.get_ident()] += 1
            with self._marked(key, str(getattr(function, "overloadpacket", function))):
                set_eval_frame(compiler)
                try:
                    return function(*arguments, **named)
                finally:
                    set_eval_frame(None)
        finally:
            set_eval_frame(compiler)

    def _key(self, function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> object:
        """Make the key under which a call counts as seen; None if it uses no GPU. The key has the thread, as cuBLAS and
        cuDNN allocate per thread."""
        tensor = sys.modules["torch"].Tensor
        values = (*arguments, *named.values())
        inside = [value for one in values if isinstance(one, (list, tuple)) for value in one]
        tensors = [value for value in (*values, *inside) if isinstance(value, tensor)]
        device = getattr(named.get("device"), "type", None)
        if device != "cuda" and not any(one.is_cuda for one in tensors):
            return None
        thread = threading.get_ident()
        types = (function, thread, device, *((one.dtype, one.device.type, one.dim()) for one in tensors))
        if self._keys[function, thread] >= _MOST_KEYS:
            return types
        try:
            key = types, *((tuple(one.shape), one.stride()) for one in tensors)
            hash(key)
        except (TypeError, RuntimeError):  # symbolic sizes; sparse and nested tensors, which have no strides
            return types
        return key


def _make_mode(call: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]) -> Any:
    """Make a dispatch mode that passes each operator to `call`."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def dispatch(mode: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return call(func, args, kwargs or {})

    for function in (dispatch, TorchOperators._call):
        _skip(function.__code__)
    traits: dict[str, Any] = {
        "supports_higher_order_operators": True,
        "is_infra_mode": classmethod(lambda cls: True),
        "_should_skip_dynamo": classmethod(lambda cls: False),  # True would import torch._dynamo, which takes seconds
        "__torch_dispatch__": dispatch,
    }
    return type("Watching", (TorchDispatchMode,), traits)()


def _skip(code: Any) -> None:
    """Keep Dynamo from compiling frames of this code object."""
    frames = sys.modules["torch"]._C._dynamo.eval_frame
    action = frames._FrameAction
    frames.set_code_exec_strategy(code, frames._FrameExecStrategy(action.SKIP, action.DEFAULT))
