"""Record each launch of a CuTe kernel when the host code calls cudaLaunchKernelEx in the DSL's runtime library.

At this call the host code has computed the grid, encoded TMA descriptors and packed the arguments. Earlier calls have
loaded the kernel; they show which name and image belong to its handle. The cubin has the size of each parameter; the
PTX shows which bytes of it the kernel reads. A 64-bit number that is an address inside a tensor is recorded as a
pointer to the tensor.
"""

from __future__ import annotations

import atexit
import ctypes
import struct
from collections import deque
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tritonhook.capture.cute import modules, runtime, state
from tritonhook.capture.cute.modules import Read, known_ptx, reads_of
from tritonhook.capture.launches import tensor_map
from tritonhook.capture.launches.arguments import Arguments, Unrecordable
from tritonhook.capture.launches.live_tensors import LIVE_TENSORS, LiveTensors, is_mapped
from tritonhook.capture.launches.record import ADDRESSES, Buffer, Descriptor, Launch, Packed, Parameter, Pointer
from tritonhook.capture.launches.recorder import Kept, recorder
from tritonhook.capture.launches.tensor_bits import USED
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.loaded import parameter_places
from tritonhook.device.cuda_driver import Driver
from tritonhook.errors import DeviceError

_COOPERATIVE, CLUSTER, _SCHEDULING, _STREAM_SERIALIZATION = 2, 4, 5, 6  # cudaLaunchAttributeID
_KNOWN = {_COOPERATIVE, CLUSTER, _SCHEDULING, _STREAM_SERIALIZATION}
_CONFIG = struct.Struct("<6IQ8xQI")  # grid, block, dynamic shared memory, stream (skipped), attributes, their number
_ATTRIBUTE = struct.Struct("<I4x3I52x")
_FATBIN = struct.Struct("<IHHQ")  # magic number, version, size of the header, size of the rest
_WORD = 8
_LEAST_ADDRESS = 1 << 32  # outside of tensors, a smaller number counts as a value, e.g. a size, not as an address
_MOST_KINDS, _MOST_FORMS = 1 << 16, 8
Attributes = tuple[tuple[int, tuple[int, ...]], ...]  # number and value of each launch attribute


@dataclass
class Kernel:
    """A kernel that the host code has looked up. image: the fat binary that contains it. descriptors: numbers of the
    parameters that are TMA descriptors, as seen in launches."""

    name: str
    image: bytes
    descriptors: frozenset[int] = frozenset()

    @cached_property
    def cubin(self) -> Cubin | None:
        found = modules.cubins([self.image])
        return next((cubin for cubin in found if self.name in cubin.kernels), None)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The size of each parameter in bytes."""
        cubin = self.cubin
        return () if cubin is None else tuple(size for _, size in parameter_places(cubin.data, self.name))

    @cached_property
    def hash(self) -> str:
        """The kernel's key for Session.record_of: hash of its cubin, and its name."""
        return "" if self.cubin is None else f"{self.cubin.sha256} {self.name}"

    @cached_property
    def mask(self) -> int:
        """Bit mask over the bytes of all parameters: ones where the kernel reads."""
        bits = at = 0
        for number, size in enumerate(self.sizes):
            used = USED if number in self.descriptors else size
            bits |= (self.read(number).mask & ((1 << 8 * used) - 1)) << 8 * at
            at += size
        return bits

    def read(self, number: int) -> Read:
        """Return which bytes of a parameter the kernel reads; all bytes if its PTX is not known."""
        ptx = known_ptx.get(self.hash)
        return Read(-1, None) if ptx is None else reads_of(ptx.text, self.name).get(number) or Read()

    def has_descriptors(self, numbers: Set[int]) -> None:
        """Mark these parameters as TMA descriptors, and drop the cached mask."""
        if not numbers <= self.descriptors:
            self.descriptors |= frozenset(numbers)
            vars(self).pop("mask", None)

    def parameters(self, places: int) -> int:
        """Read the bytes of all parameters as one integer, with zeros for the bytes that the kernel does not read.
        places: address of an array with the address of each parameter."""
        addresses = (ctypes.c_uint64 * len(self.sizes)).from_address(places)
        return int.from_bytes(b"".join(map(ctypes.string_at, addresses, self.sizes)), "little") & self.mask

    def apart(self, parameters: int) -> list[bytes]:
        """Split an integer returned by `parameters` into the bytes of each parameter."""
        data, made, at = parameters.to_bytes(sum(self.sizes), "little"), [], 0
        for size in self.sizes:
            made.append(data[at : at + size])
            at += size
        return made


@dataclass(frozen=True, slots=True)
class Form:
    """A template for launches of one kernel that differ only in addresses; they count as the same launch.

    parameters: bytes of all parameters as one integer, with zeros for the addresses. addresses: for each address
    (position in `parameters` in bits, distance in bytes from the address to the first byte used, number of its buffer,
    offset of that byte in the buffer). buffers: the buffers that the addresses point into. kept: the records of the
    launch.
    """

    parameters: int
    addresses: tuple[tuple[int, int, int, int], ...]
    buffers: tuple[Buffer, ...]
    kept: list[Kept]

    @classmethod
    def of(cls, launch: Launch, kernel: Kernel, parameters: int, kept: list[Kept]) -> Form:
        """Make the form of a launch from its description."""
        at, addresses = 0, []
        for size, one in zip(kernel.sizes, launch.parameters, strict=True):
            if isinstance(one, Packed):
                addresses += [(8 * (at + where), 0, buffer, offset) for where, buffer, offset in one.pointers]
            elif isinstance(one, Descriptor):
                addresses.append((8 * at, one.tiling.begin, one.buffer, one.offset + one.tiling.begin))
            elif isinstance(one, Pointer) and one.buffer is not None:
                addresses.append((8 * at, 0, one.buffer, one.offset))
            at += size
        return cls(_without(parameters, addresses), tuple(addresses), launch.buffers, kept)

    def has(self, parameters: int, tensors: LiveTensors) -> bool:
        """Check whether a launch with these parameters has this form: all values except addresses are equal, and the
        addresses point to the same offsets in equal buffers."""
        if _without(parameters, self.addresses) != self.parameters:
            return False
        values = [((parameters >> bit) + begin) % ADDRESSES for bit, begin, *_ in self.addresses]
        found, given = tensors.at({*values}), Arguments("")
        if not all(value in found for value in values):
            return False
        placed = [given.place(found[value], value) for value in values]
        same = zip(placed, self.addresses, strict=True)
        return all(place == address[2:] for place, address in same) and tuple(given.buffers) == self.buffers


def _without(parameters: int, addresses: Iterable[tuple[int, int, int, int]]) -> int:
    for bit, *_ in addresses:
        parameters &= ~(ADDRESSES - 1 << bit)
    return parameters


# --- the hooks -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Recording:
    """The libraries, kernels and launches of the host code while sessions record launches.

    libraries: fat binary by handle. kernels: by handle. kinds: records of each launch, by kernel, shape and parameter
    bytes. A later launch with the same three is only counted. forms: the latest forms by kernel and shape, to recognise
    launches that differ only in addresses.
    """

    libraries: dict[int, bytes] = field(default_factory=dict)
    kernels: dict[int, Kernel] = field(default_factory=dict)
    kinds: dict[tuple[Any, ...], list[Kept]] = field(default_factory=dict)
    forms: dict[tuple[Any, ...], deque[Form]] = field(default_factory=dict)

    def loaded(self, library: int, code: int, *_: int) -> None:
        """Store a library's fat binary. Called after cudaLibraryLoadData."""
        _, _, header, size = _FATBIN.unpack(ctypes.string_at(code, _FATBIN.size))
        self.libraries[ctypes.c_uint64.from_address(library).value] = ctypes.string_at(code, header + size)

    def found(self, kernel: int, library: int, name: int) -> None:
        """Store a kernel's name and image. Called after cudaLibraryGetKernel."""
        if (image := self.libraries.get(library)) is not None:
            handle = ctypes.c_uint64.from_address(kernel).value
            self.kernels[handle] = Kernel(ctypes.string_at(name).decode(), image)

    def launched(self, *given: int) -> None:
        """Record a launch. Called before cudaLaunchKernelEx and cudaLaunchKernel, with their arguments."""
        self._met(*launch_of(given))

    def called(self, *given: int) -> Called:
        """Read the arguments of cudaLaunchKernelEx or cudaLaunchKernel. Raises Unrecordable for a kernel that the DSL
        did not load."""
        handle, shape, shared, attributes, parameters = launch_of(given)
        if (kernel := self.kernels.get(handle)) is None:
            raise Unrecordable("the DSL did not load the kernel")
        return Called(kernel, shape, shared, dict(attributes), kernel.apart(kernel.parameters(parameters)))

    def _met(self, handle: int, shape: tuple[int, ...], shared: int, attributes: Attributes, parameters: int) -> None:
        kernel = self.kernels.get(handle)
        if kernel is None or not kernel.sizes:
            what = "the DSL did not load the kernel" if kernel is None else f"{kernel.name} has unknown parameters"
            state.note(f"a launch of the CuTe DSL was not recorded: {what}")
            return
        given, launch = kernel.parameters(parameters), (handle, *shape, shared, attributes)
        kind = (*launch, given)
        kept = self.kinds.get(kind)
        if kept is None:
            if len(self.kinds) >= _MOST_KINDS:
                self.forget()
            forms = self.forms.setdefault(launch, deque(maxlen=_MOST_FORMS))
            kept = next((form.kept for form in tuple(forms) if form.has(given, LIVE_TENSORS)), None)
            if kept is None:
                one = Called(kernel, shape, shared, dict(attributes), kernel.apart(given))
                self.kinds[kind] = self._keep(one, given, forms)
                return
            self.kinds[kind] = kept
        for session, record, key in kept:
            session.count_launch(record, key)

    def _keep(self, one: Called, parameters: int, forms: deque[Form]) -> list[Kept]:
        described: list[Launch] = []

        def describe() -> tuple[Launch, list[Any]]:
            launch, storages = one.described(LIVE_TENSORS)
            described.append(launch)
            return launch, storages

        sessions = [attached.session for attached in state.attached if attached.session.settings.launches]
        kept = recorder.met(sessions, one.kernel.hash, describe)
        if kept:
            forms.append(Form.of(described[0], one.kernel, parameters & one.kernel.mask, kept))
        return kept

    def forget(self) -> None:
        """Clear the kinds and forms of launches."""
        self.kinds.clear()
        self.forms.clear()


def launch_of(given: tuple[int, ...]) -> tuple[int, tuple[int, ...], int, Attributes, int]:
    """Return (kernel handle, grid and block, shared memory in bytes, attributes, address of the parameters). given: the
    arguments of cudaLaunchKernelEx or cudaLaunchKernel. In grid and block of cudaLaunchKernel only the lower 32 bits
    are valid."""
    if len(given) == 3:
        *shape, shared, attributes, count = _CONFIG.unpack(ctypes.string_at(given[0], _CONFIG.size))
        return given[1], tuple(shape), shared, _attributes(attributes, count), given[2]
    handle, *shape, parameters, shared, _ = given
    return handle, tuple(size & 0xFFFF_FFFF for size in shape), shared, (), parameters


def _attributes(at: int, count: int) -> Attributes:
    """Read number and value of each launch attribute. If a value is a pointer, the memory behind it is not read."""
    data = ctypes.string_at(at, _ATTRIBUTE.size * count)
    return tuple((number, (x, y, z) if number == CLUSTER else (x,)) for number, x, y, z in _ATTRIBUTE.iter_unpack(data))


def _contained(hook: runtime.Hook) -> runtime.Hook:
    def call(*given: int) -> None:
        try:
            hook(*given)
        except Exception as error:
            for attached in state.attached:
                attached.session.contain("a launch of the CuTe DSL could not be recorded", error)

    return call


recordings: list[Recording] = []  # at most one per process, made for the first session that records launches


def changed() -> None:
    """Start or stop recording launches, after a session was attached or detached. Launches are recorded only from host
    code that is linked after the start. The DSL must be imported."""
    wanted = any(attached.session.settings.launches for attached in state.attached)
    if wanted and not recordings:
        made, place = Recording(), runtime.of_process()
        place.hook(runtime.LOAD, _contained(made.loaded))
        place.hook(runtime.KERNEL, _contained(made.found))
        recordings.append(made)
        atexit.register(_leave)
    for made in recordings:
        made.forget()
        place = runtime.of_process()
        place.hook(runtime.LAUNCH, _contained(made.launched) if wanted else None)
        place.hook(runtime.PLAIN_LAUNCH, _contained(made.launched) if wanted else None)


def _leave() -> None:
    """Remove all hooks at exit, so that host code calls no Python while the interpreter shuts down."""
    for name in (runtime.LOAD, runtime.KERNEL, runtime.LAUNCH, runtime.PLAIN_LAUNCH):
        runtime.of_process().hook(name, None)


# --- the launch ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Called:
    """The arguments of one launch. shape: grid, then block. shared: dynamic shared memory in bytes. parameters: bytes
    of each parameter."""

    kernel: Kernel
    shape: tuple[int, ...]
    shared: int
    attributes: Mapping[int, tuple[int, ...]]
    parameters: list[bytes]

    def described(self, tensors: LiveTensors) -> tuple[Launch, list[Any]]:
        """Return (description of the launch, storages of its buffers). Raises Unrecordable for an unknown launch
        attribute or a pointer to unknown memory."""
        name = self.kernel.name
        unknown = {number for number, value in self.attributes.items() if value[0]} - _KNOWN
        if unknown:
            raise Unrecordable(f"{name}: unknown launch attribute {min(unknown)}")
        given = Arguments(name)
        maps = {n: made for n, data in enumerate(self.parameters) if (made := tensor_map.decoded(data)) is not None}
        words = [
            {0: (maps[n][0] + maps[n][1].begin) % ADDRESSES} if n in maps else self._words(n, data)
            for n, data in enumerate(self.parameters)
        ]
        found = tensors.at({value for each in words for value in each.values()})
        for number, (data, each) in enumerate(zip(self.parameters, words, strict=True)):
            if (made := maps.get(number)) is not None:
                parameter: Parameter = given.descriptor(str(number), *made, found.get(each[0]))
            else:
                parameter = self._parameter(number, data, self._pointers(number, data, each, found, given), given)
            given.parameters.append(parameter)
        self.kernel.has_descriptors(maps.keys())
        gx, gy, gz, bx, by, bz = self.shape
        x, y, z = self.attributes.get(CLUSTER, (1, 1, 1))
        flags = (bool(self.attributes.get(which, (0,))[0] & 1) for which in (_COOPERATIVE, _STREAM_SERIALIZATION))
        passed = tuple(given.parameters), tuple(given.buffers)
        cluster = x or 1, y or 1, z or 1
        return Launch(name, (gx, gy, gz), (bx, by, bz), *passed, cluster, self.shared, *flags), given.storages

    def _words(self, number: int, data: bytes) -> dict[int, int]:
        """Return the 64-bit numbers in a parameter that may be addresses, by byte offset in the parameter."""
        read = self.kernel.read(number).words
        places = range(0, len(data) - _WORD + 1, _WORD) if read is None else sorted(read)
        values = ((at, int.from_bytes(data[at : at + _WORD], "little")) for at in places)
        return {at: value for at, value in values if value >> 16 and not value >> 57}

    def _pointers(
        self, number: int, data: bytes, words: Mapping[int, int], found: Mapping[int, Any], given: Arguments
    ) -> list[tuple[int, int, int]]:
        """Return the pointers in a parameter as (byte offset in the parameter, number of the buffer, byte offset in the
        buffer). Raises Unrecordable for a pointer to memory that belongs to no known tensor."""
        pointers = []
        for at, value in words.items():
            if (tensor := found.get(value)) is not None:
                pointers.append((at, *given.place(tensor, value)))
            elif value >= _LEAST_ADDRESS and (is_mapped(value) or _is_on_gpu(value)):
                where = f", at byte {at}" if len(data) > _WORD else ""
                what = f"argument {number} points to memory of no known tensor{where}"
                raise Unrecordable(f"{self.kernel.name}: {what}")
        return pointers

    def _parameter(
        self, number: int, data: bytes, pointers: list[tuple[int, int, int]], given: Arguments
    ) -> Pointer | Packed:
        if len(data) == _WORD and pointers:
            ((_, index, offset),) = pointers
            return Pointer(str(number), index, offset, given.buffers[index].dtype)
        rest = bytearray(data)
        for at, _, _ in pointers:
            rest[at : at + _WORD] = bytes(_WORD)
        return Packed(str(number), rest.hex(), tuple(pointers))


def _is_on_gpu(address: int) -> bool:
    with suppress(DeviceError):
        return Driver().is_pointer(address)
    return False
