"""Record launches of Triton kernels: grid, block and arguments. Equal launches are recorded once and counted.

`CompiledKernel.run` and Inductor's static launcher are patched only while a session records launches
(`enable(launches=True)`, `tritonhook run --launches`). So launches are not slower otherwise. The contents of integer
tensors are kept, because addresses and branches often depend on them; the contents of floating-point tensors are kept
only with launches="values".
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tritonhook.capture.launches.arguments import ENCODED, Arguments, Unrecordable
from tritonhook.capture.launches.record import Buffer, Launch, Scratch
from tritonhook.capture.patching import Hooks, Patch
from tritonhook.capture.settings import VALUES

if TYPE_CHECKING:
    from tritonhook.capture.observers import Contents, Observer

MOST_INTEGERS = 64 << 20  # bytes; the contents of larger integer buffers are not kept
MOST_VALUES = 4 << 30  # bytes of contents per launch; above it, only contents of integer buffers are kept
_LAUNCHERS = "torch._inductor.runtime.static_triton_launcher", "torch._inductor.runtime.static_cuda_launcher"
_STATIC_TYPES = {"i": "i32", "b": "i8", "h": "i16", "l": "i64", "I": "u32", "B": "u8", "H": "u16", "K": "u64"}
_STATIC_TYPES |= {"f": "fp32", "d": "fp64", "O": "*", "e": "fp16", "y": "bf16", "M": ENCODED}


Describe = Callable[[], tuple[Launch, Sequence[Any]]]  # returns a launch and the storages of its buffers
Launched = Callable[[Any, Sequence[int], Sequence[Any]], None]  # called with kernel, grid, arguments
Kept = tuple["Observer", str, str]  # (session, its record of the kernel, key of the launch)


class Recorder(Hooks):
    """Hooks that record this process's launches for sessions with `launches` set."""

    def __init__(self) -> None:
        super().__init__()
        self._busy = threading.local()

    def attach(self, session: Observer) -> None:
        super().attach(session)
        self.look_again()

    def _patched(self) -> list[Patch]:
        from triton.compiler import CompiledKernel

        return [Patch(CompiledKernel, "run", partial(around_launches, self._met_triton, False))]

    def _met_triton(self, kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> None:
        self.met(self.sessions, kernel.hash, lambda: of_triton(kernel, grid, arguments))

    def look_again(self) -> None:
        """Patch torch.compile's launcher if it was imported since the last call. Called after each compile."""
        if self.sessions:
            with self._lock:
                self._patch_inductor()

    def _patch_inductor(self) -> None:
        """Patch torch.compile's static launcher, if torch has imported it."""
        for name in _LAUNCHERS:
            launcher = getattr(sys.modules.get(name), "StaticallyLaunchedCudaKernel", None)
            owner = next((base for base in getattr(launcher, "__mro__", ()) if "run" in base.__dict__), None)
            if owner is not None and not any(patch.owner is owner for patch in self._patches):
                self._patches.append(Patch(owner, "run", self._recording_method))

    def _recording_method(self, launch: Callable[..., Any]) -> Callable[..., Any]:
        def recording(kernel: Any, x: int, y: int, z: int, stream: int, *given: Any) -> Any:
            self.met(self.sessions, kernel.hash, lambda: of_inductor(kernel, (x, y, z), given))
            return launch(kernel, x, y, z, stream, *given)

        return recording

    @property
    def is_busy(self) -> bool:
        """True while this thread describes a launch. It then calls methods of tensors, which dry runs must not count as
        calls by the program."""
        return getattr(self._busy, "now", False)

    def met(self, sessions: Sequence[Observer], hash: str, describe: Describe) -> list[Kept]:
        """Record a launch for each session that has kept the kernel. Called before each launch. hash: as in
        Session.record_of. Errors are reported to the sessions and not raised."""
        if self.is_busy:
            return []
        self._busy.now = True
        try:
            return self._keep(sessions, hash, describe)
        except Exception as error:
            for session in sessions:
                session.contain("a launch could not be recorded", error)
            return []
        finally:
            self._busy.now = False

    def _keep(self, sessions: Sequence[Observer], hash: str, describe: Describe) -> list[Kept]:
        wanting = [(session, record) for session in sessions if (record := session.record_of(hash)) is not None]
        if not wanting:
            return []
        try:
            launch, storages = describe()
        except Unrecordable as error:
            for session, record in wanting:
                session.miss_launch(record, str(error))
            return []
        key = launch.key
        for session, record in wanting:
            session.keep_launch(record, key, *self._with_contents(session, launch, key, storages))
        return [(session, record, key) for session, record in wanting]

    def _with_contents(
        self, session: Observer, launch: Launch, key: str, storages: Sequence[Any]
    ) -> tuple[Launch, Contents]:
        """Return the launch with file names for its contents, and a function that reads the contents. The function is
        called only for the first launch with this key."""
        from tritonhook.capture.launches.live_tensors import memory_of  # here, so that `enable` imports less

        every = session.settings.launches == VALUES
        kept = [
            _wants_values(buffer, every) and memory_of(tensor) is not None
            for buffer, (tensor, *_) in zip(launch.buffers, storages, strict=True)
        ]
        if sum(buffer.size for buffer, wanted in zip(launch.buffers, kept, strict=True) if wanted) > MOST_VALUES:
            session.note(f"{launch.kernel}: its buffers have over {MOST_VALUES >> 30} GiB: only integers are kept")
            kept = [k and _wants_values(buffer, False) for k, buffer in zip(kept, launch.buffers, strict=True)]
        if any(kept) and _is_capturing():
            session.note(f"{launch.kernel}: the first launch was captured into a CUDA graph: its buffers were not kept")
            kept = [False] * len(kept)
        names = [f"{key}-{number}.bin" if wanted else None for number, wanted in enumerate(kept)]
        named = tuple(replace(buffer, values=name) for buffer, name in zip(launch.buffers, names, strict=True))

        def read() -> dict[str, bytes]:
            return {
                name: _contents(*storage) for name, storage in zip(names, storages, strict=True) if name is not None
            }

        return replace(launch, buffers=named), read


recorder = Recorder()


def around_launches(met: Launched, is_after: bool, original: property) -> property:
    """Wrap Triton's property `run`, which returns a kernel's launcher. met: called before each launch, or after it if
    `is_after`."""

    def run(kernel: Any) -> Any:
        launch = original.__get__(kernel)

        def launched(x: int, y: int, z: int, stream: int, function: Any, packed: Any, *rest: Any) -> Any:
            if not is_after:
                met(kernel, (x, y, z), rest[3:])
            result = launch(x, y, z, stream, function, packed, *rest)
            if is_after:
                met(kernel, (x, y, z), rest[3:])
            return result

        return launched

    return property(run)


def _wants_values(buffer: Buffer, all_of_them: bool) -> bool:
    integers = buffer.dtype.startswith(("int", "uint", "bool"))
    return all_of_them or (integers and buffer.size <= MOST_INTEGERS)


def _is_capturing() -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


# --- describing a launch -------------------------------------------------------------------------


def of_triton(kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> tuple[Launch, list[Any]]:
    """Describe a launch by Triton's own launcher. Returns the launch and the storages of its buffers, each as (tensor,
    start in bytes, size in bytes). Raises Unrecordable for unknown arguments."""
    metadata, source = kernel.metadata, kernel.src
    signature = getattr(source, "signature", None)
    if signature is None:
        raise Unrecordable(f"{kernel.name} has no signature")
    given = Arguments(kernel.name, getattr(metadata, "tensordesc_meta", None) or ())
    for (name, kind), argument in zip(signature.items(), arguments, strict=True):
        given.add(_argument_name(source, name), kind, argument)
    clusters = int(getattr(metadata, "num_ctas", 1))
    blocks = grid[0] * grid[1] * grid[2] * clusters
    for what in ("global_scratch_size", "profile_scratch_size"):
        if (size := getattr(metadata, what, None)) is not None:
            given.parameters.append(Scratch(int(size) * blocks))
    launch = Launch(
        kernel.name,
        (grid[0] * clusters, grid[1], grid[2]),
        (32 * metadata.num_warps, 1, 1),
        tuple(given.parameters),
        tuple(given.buffers),
        (clusters, 1, 1),
        int(metadata.shared),
        bool(getattr(metadata, "launch_cooperative_grid", False)),
        bool(getattr(metadata, "launch_pdl", False)),
    )
    return launch, given.storages


def of_inductor(kernel: Any, grid: Sequence[int], arguments: Sequence[Any]) -> tuple[Launch, list[Any]]:
    """Describe a launch by torch.compile's static launcher. Returns and raises the same as of_triton."""
    given = Arguments(kernel.name)
    if getattr(kernel, "_has_tensordesc", False):
        arguments = kernel._expand_tma_args(arguments)  # the launcher does this later; a second call changes nothing
    for number, (code, argument) in enumerate(zip(kernel.arg_tys, arguments, strict=True)):
        if code not in _STATIC_TYPES:
            raise Unrecordable(f"{kernel.name}: argument {number} has the unknown type {code!r}")
        given.add(str(number), _STATIC_TYPES[code], argument)
    x, y, z = grid
    for what in ("global", "profile"):
        if getattr(kernel, f"has_{what}_scratch", False):
            given.parameters.append(Scratch(x * y * z * int(getattr(kernel, f"{what}_scratch_size", 0))))
    block = (32 * kernel.num_warps, 1, 1)
    passed = tuple(given.parameters), tuple(given.buffers)
    return Launch(kernel.name, (x, y, z), block, *passed, shared=int(kernel.shared)), given.storages


def _argument_name(source: Any, name: Any) -> str:
    names = getattr(getattr(source, "fn", None), "arg_names", ())
    return str(names[name] if isinstance(name, int) and name < len(names) else name)


def _contents(tensor: Any, start: int, size: int) -> bytes:
    """Read part of the allocation of a tensor, as bytes."""
    import torch

    from tritonhook.capture.launches.live_tensors import cpu_bytes

    storage = tensor.untyped_storage()
    if storage.device.type == "cpu":  # in a dry run
        return bytes(cpu_bytes(tensor, start, size) or b"")
    whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
    return bytes(whole[start : start + size].cpu().numpy().tobytes())
