"""Repeat a recorded launch: make its buffers, pack its arguments, and launch a cubin on torch's stream.

Buffers needs torch and a GPU; LoadedKernel accepts any LaunchMemory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from tritonhook._util.files import MOST_BYTES, read_regular
from tritonhook.capture.launches.record import DTYPE_BYTES, Buffer, Descriptor, Launch, Packed, Pointer, Scalar, Tiling
from tritonhook.capture.launches.tensor_map import BYTES, encoded
from tritonhook.device.cuda_driver import Driver, argument_pointers, launch_config
from tritonhook.errors import UsageError
from tritonhook.timing.output_check import difference

_PORTABLE_CLUSTER = 8
_CHUNK = 1 << 24  # elements filled at a time, which limits the memory for the random float32 numbers


class LaunchMemory(Protocol):
    """Buffers of a launch on the GPU, and its stream."""

    launch: Launch

    @property
    def addresses(self) -> list[int]:
        """The addresses of the launch's buffers."""

    def scratch(self, size: int) -> int:
        """Allocate zeroed bytes for the kernel's own use, and return their address."""

    def stream(self) -> int | None:
        """Return the stream for the next launch; None: the default stream."""


class Buffers:
    """The buffers of a launch, allocated by torch on the current device, with their contents before the launch.

    If the record has no contents of a buffer, a floating-point buffer gets normal random numbers, the same each time,
    and an integer buffer zeros.
    """

    def __init__(self, launch: Launch, folder: Path | None = None) -> None:
        import torch

        self.launch, self.folder = launch, folder
        self.tensors = [torch.empty(max(b.size, 1), dtype=torch.uint8, device="cuda") for b in launch.buffers]
        self._scratch: list[Any] = []
        self._held: Sequence[bytes | None] | None = None
        self.restore()

    @property
    def addresses(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self.tensors]

    def scratch(self, size: int) -> int:
        import torch

        self._scratch.append(torch.zeros(size, dtype=torch.uint8, device="cuda"))
        return int(self._scratch[-1].data_ptr())

    def stream(self) -> int | None:
        import torch

        return torch.cuda.current_stream().cuda_stream or None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on buffers whose contents are not in the record."""
        made_up = [buffer for buffer in self.launch.buffers if not self._file(buffer)]
        integers = sum(buffer.dtype.startswith(("int", "uint", "bool")) for buffer in made_up)
        notes = []
        if made_up:
            notes.append(
                f"{len(made_up)} of {len(self.tensors)} buffers have made-up contents: the record has only shapes"
            )
        if integers:
            notes.append(f"{integers} integer buffers are filled with zeros, which may change what the kernel does")
        return tuple(notes)

    def _file(self, buffer: Buffer) -> Path | None:
        path = None if self.folder is None or buffer.values is None else self.folder / buffer.values
        return path if path is not None and path.exists() else None

    def hold(self, contents: Sequence[bytes | None] | None) -> None:
        """Change the contents that the buffers have before the launch. contents: for each buffer its bytes, or None for
        its recorded contents; None instead of a list: recorded contents for all buffers."""
        self._held = contents
        self.restore()

    def restore(self) -> None:
        """Fill all buffers with their contents before the launch."""
        for number, (buffer, tensor) in enumerate(zip(self.launch.buffers, self.tensors, strict=True)):
            path = self._file(buffer)
            if self._held is not None and (data := self._held[number]) is not None:
                _copy(tensor, data)
            elif path is None:
                _fill(tensor[: buffer.size], buffer.dtype, number)
            else:
                _load(tensor, path, buffer.size)

    def views(self) -> list[Any]:
        """Return each buffer as a tensor of its recorded dtype."""
        return _typed(self.launch, self.tensors)


class OtherLaunch:
    """Existing buffers, used for the launch of another configuration with the same arguments. Raises UsageError if the
    buffers of this launch have other sizes."""

    def __init__(self, memory: LaunchMemory, launch: Launch) -> None:
        if [buffer.size for buffer in launch.buffers] != [buffer.size for buffer in memory.launch.buffers]:
            raise UsageError("its launch has buffers of other sizes")
        self.launch, self._memory = launch, memory
        self.addresses, self.scratch, self.stream = memory.addresses, memory.scratch, memory.stream


def _typed(launch: Launch, tensors: Sequence[Any]) -> list[Any]:
    import torch

    typed = []
    for buffer, tensor in zip(launch.buffers, tensors, strict=True):
        width = DTYPE_BYTES[buffer.dtype]
        whole = tensor[: buffer.size // width * width]
        dtype = getattr(torch, buffer.dtype, torch.uint8)
        typed.append(whole if dtype in (torch.bool, torch.uint8) else whole.view(dtype))
    return typed


class OutputCheck:
    """Compares the results that kernels store in the buffers of a launch; the first kernel is the reference.

    rtol: allowed difference as a fraction of the largest value; None: bits must be equal. any_nan: all NaNs count as
    equal, since PTX does not define their bits.
    """

    def __init__(self, buffers: Buffers, rtol: float | None, any_nan: bool = False) -> None:
        self._buffers, self._rtol, self._any_nan = buffers, rtol, any_nan
        self._reference: list[Any] = []
        self._before: dict[int, Any] = {}  # contents of buffers that the reference changes

    def difference(self, kernel: LoadedKernel) -> str | None:
        """Launch a kernel once, restore the buffers, and describe how its results differ from the reference's; None if
        they are equal."""
        import torch

        kernel.launch()
        torch.cuda.synchronize()
        if not self._reference:
            self._set_reference()
            return None
        text = difference(self._reference, self._buffers.views(), self._rtol, self._any_nan)
        if text is not None:  # the kernel may also have changed buffers that the reference does not change
            self._buffers.restore()
        for number, before in self._before.items():
            self._buffers.tensors[number].copy_(before)
        return text

    def _set_reference(self) -> None:
        import torch

        stored = [tensor.clone() for tensor in self._buffers.tensors]
        self._reference = _typed(self._buffers.launch, stored)
        self._buffers.restore()
        for number, (before, after) in enumerate(zip(self._buffers.tensors, stored, strict=True)):
            if not torch.equal(before, after):
                self._before[number] = before.clone()


def _fill(tensor: Any, dtype: str, seed: int) -> None:
    import torch

    if not dtype.startswith(("float", "bfloat", "complex")) or "x2" in dtype:
        tensor.zero_()
        return
    generator = torch.Generator(device=tensor.device).manual_seed(seed)
    real = getattr(torch, {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype))
    width = real.itemsize
    typed = tensor[: tensor.numel() // width * width].view(real)
    if "e8m0" in dtype:
        tensor.fill_(127)  # 2^0
        return
    for start in range(0, typed.numel(), _CHUNK):
        part = typed[start : start + _CHUNK]
        part.copy_(torch.randn(part.numel(), generator=generator, device=tensor.device))


def _load(tensor: Any, path: Path, size: int) -> None:
    data = read_regular(path, max(size, MOST_BYTES))
    if len(data) != size:
        raise UsageError(f"{path}: {len(data)} bytes, but the record says {size}; record the launch again")
    _copy(tensor, data)


def _copy(tensor: Any, data: bytes) -> None:
    import torch

    if data:
        tensor[: len(data)].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


class LoadedKernel:
    """A kernel of a cubin, loaded and ready to be launched on existing buffers. The thread must have a CUDA context."""

    def __init__(self, image: bytes, name: str, memory: LaunchMemory, driver: Driver | None = None) -> None:
        """Load the kernel and pack its arguments. Raises DeviceError, and UsageError if the recorded arguments do not
        fit the kernel."""
        self.name, self.memory = name, memory
        self._driver = driver or Driver()
        launch = memory.launch
        self._module = self._driver.load(image)
        self._function = self._driver.function(self._module, name)
        if launch.shared:
            self._driver.set_dynamic_shared(self._function, launch.shared)
        if launch.cluster[0] * launch.cluster[1] * launch.cluster[2] > _PORTABLE_CLUSTER:
            self._driver.allow_large_clusters(self._function)
        self._arguments = pack(launch, memory.addresses, memory.scratch, self._driver.tensor_map)
        check_parameters(name, self._arguments, self._driver.parameter_sizes(self._function))
        self._pointers = argument_pointers(self._arguments)
        self._config = launch_config(
            launch.grid, launch.block, launch.shared, launch.cluster, launch.cooperative, launch.pdl
        )

    def launch(self) -> None:
        """Launch the kernel on the memory's stream, also while a graph captures the stream."""
        self._config.stream = self.memory.stream()
        self._driver.launch_config(self._function, self._config, self._pointers)

    def unload(self) -> None:
        """Unload the kernel's code. It cannot be launched after that."""
        self._driver.unload(self._module)


def pack(
    launch: Launch,
    addresses: Sequence[int],
    scratch: Callable[[int], int],
    tensor_map: Callable[[Tiling, int], Any],
) -> list[Any]:
    """Pack the kernel's parameters as ctypes values. addresses: addresses of the buffers. scratch: allocates N bytes
    for the kernel's own use and returns their address. tensor_map: makes the TMA descriptor of a tensor at an
    address."""
    packed: list[Any] = []
    for parameter in launch.parameters:
        if isinstance(parameter, Scalar):
            packed.append((ctypes.c_ubyte * len(parameter.bytes)).from_buffer_copy(parameter.bytes))
        elif isinstance(parameter, Pointer):
            null = parameter.buffer is None
            packed.append(ctypes.c_uint64(0 if null else addresses[parameter.buffer or 0] + parameter.offset))
        elif isinstance(parameter, Packed):
            data = parameter.filled(addresses)
            packed.append((ctypes.c_ubyte * len(data)).from_buffer_copy(data))
        elif isinstance(parameter, Descriptor):
            make = _as_by_host if parameter.tiling.by_host else tensor_map
            packed.append(make(parameter.tiling, addresses[parameter.buffer] + parameter.offset))
        else:
            packed.append(ctypes.c_uint64(scratch(parameter.size) if parameter.size else 0))
    return packed


def _as_by_host(tiling: Tiling, address: int) -> Any:
    return (ctypes.c_ubyte * BYTES).from_buffer_copy(encoded(tiling, address).ljust(BYTES, b"\0"))


def check_parameters(name: str, arguments: Sequence[Any], wanted: Sequence[int] | None) -> None:
    """Raise UsageError if the sizes of the arguments differ from those of the kernel's parameters. wanted: bytes of
    each parameter; None: not known."""
    given = tuple(ctypes.sizeof(argument) for argument in arguments)
    if wanted is None or given == tuple(wanted):
        return
    raise UsageError(
        f"{name}: takes {len(wanted)} parameters of {', '.join(map(str, wanted)) or 'no'} bytes; the record has "
        f"{len(given)} of {', '.join(map(str, given)) or 'no'}; does the record belong to another kernel?"
    )
