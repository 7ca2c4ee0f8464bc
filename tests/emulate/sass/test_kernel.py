"""What a kernel of machine code needs: its constants, its parameters, its image."""

from __future__ import annotations

from struct import unpack_from

import pytest

np = pytest.importorskip("numpy")

from repository import ROOT  # noqa: E402

from tritonhook.cubin.image import Cubin  # noqa: E402
from tritonhook.cubin.sass import Sass  # noqa: E402
from tritonhook.emulate.machine import Geometry  # noqa: E402
from tritonhook.emulate.memory import LOCAL_WINDOW  # noqa: E402
from tritonhook.emulate.sass.kernel import SassKernel, read_sass_kernel  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

GOLDEN = ROOT / "tests" / "golden"


def kernel_of(arch, stack=0x1230, **more):
    return SassKernel(None, arch, (), stack, 0, {}, **more)


# Where ptxas reads %ntid.x, %nctaid.x, the stack pointer, the parameters, and the parameters' generic address.
PLACES = {
    75: (0, 0xC, 0x28, 0x160, None), 80: (0, 0xC, 0x28, 0x160, None), 90: (0, 0xC, 0x28, 0x210, 0x198),
    100: (0x360, 0x370, 0x37C, 0x380, 0x348), 103: (0x360, 0x370, 0x37C, 0x380, 0x348),
    120: (0x360, 0x370, 0x37C, 0x380, 0x348),
}  # fmt: skip


@pytest.mark.parametrize("arch", PLACES)
def test_constants_of_a_launch(arch):
    block, grid, stack, parameters, window = PLACES[arch]
    kernel, given = kernel_of(arch), bytes(range(1, 9))
    found = kernel.constants(Geometry((7, 8, 9), (4, 5, 6), (0,)), given, 0x1122334455667788, 1234)
    assert len(found) == parameters + 8 and found[parameters:] == given
    assert unpack_from("<3I", found, block) == (4, 5, 6) and unpack_from("<3I", found, grid) == (7, 8, 9)
    assert unpack_from("<I", found, stack) == (0x1230,)
    known = {
        *range(block, block + 12),
        *range(grid, grid + 12),
        *range(stack, stack + 4),
        *range(parameters, parameters + 9),
    }
    descriptor = kernel.places.descriptor
    known |= set(range(descriptor, descriptor + 8))
    more = {80: {*range(0x20, 0x28), *range(0x2C, 0x30)}}
    more[90] = more[80] | {*range(0x114, 0x118), *range(0x140, 0x168), *range(0x188, 0x18C)}
    more[90] |= {*range(0x13C, 0x140), *range(0x1A0, 0x1A8)}
    known |= more.get(arch, set()) | ({*range(0xD0, 0xD8)} if arch == 90 else set())
    if arch in more:
        assert unpack_from("<Q", found, 0x20) == (LOCAL_WINDOW,) and unpack_from("<I", found, 0x2C) == (1234,)
    if window is not None:
        assert unpack_from("<Q", found, window) == (0x1122334455667788,)
        known |= set(range(window, window + 8))
    if arch == 90:  # where the parameters end, and the bytes of shared memory, with the system's
        assert unpack_from("<Q", found, 0x1A0) == (0x1122334455667790,)
        assert unpack_from("<I", found, 0x13C) == (kernel.shared + 1234,)
    assert {at for at in range(parameters + 9) if kernel.is_known_constant(at)} == known
    filled = {*range(block, block + 12), *range(grid, grid + 12), *range(stack, stack + 4)}
    filled |= set(range(window, window + 8)) if window is not None else set()
    assert not any(found[at] for at in set(range(parameters)) - filled - more.get(arch, set()))


@pytest.mark.parametrize("cluster", [1, 2])
def test_a_kernel_sees_whether_it_was_launched_in_clusters(cluster):
    found = kernel_of(90).constants(Geometry((2, 1, 1), (4, 1, 1), (0, 1), (cluster, 1, 1)), b"")
    assert unpack_from("<4I3f3I", found, 0x140) == (cluster - 1, cluster, 1, 1, 1 / cluster, 1, 1, 2 // cluster, 1, 1)
    assert unpack_from("<I", found, 0x188) == (cluster,)


def test_another_architecture_is_refused():
    with pytest.raises(NotUnderstood, match="sm_110"):
        _ = kernel_of(110).places


@pytest.mark.parametrize(
    ("arguments", "offsets"),
    [
        ([b"a", b"b" * 8, b"c" * 2, b"d" * 4], [0, 8, 16, 20]),
        ([b"a" * 4, b"t" * 128, b"b"], [0, 48, 176]),  # a descriptor: 0x210 + 48 is a multiple of 64
        ([b"", b"b"], [0, 0]),
        ([], []),
    ],
)
def test_parameters_are_aligned_to_their_sizes_in_the_bank(arguments, offsets):
    found = kernel_of(90).pack(arguments)
    assert [found[at : at + len(one)] for at, one in zip(offsets, arguments, strict=True)] == arguments
    assert len(found) == max([0, *(at + len(one) for at, one in zip(offsets, arguments, strict=True))])
    assert sum(map(bool, found)) == sum(map(len, arguments))  # zeros lie between
    said = tuple(at + 16 * n for n, at in enumerate(offsets))
    packed = kernel_of(90, offsets=said).pack(arguments)
    assert [packed[at : at + len(one)] for at, one in zip(said, arguments, strict=True)] == arguments


@pytest.mark.parametrize("name", ["sm_80.exp.plain", "sm_90a.module", "sm_120a.tensor_load.cluster"])
def test_an_image_says_what_its_kernel_needs(name):
    cubin = Cubin.from_bytes((GOLDEN / f"{name}.cubin").read_bytes())
    for entry in cubin.kernels:
        kernel = read_sass_kernel(cubin, Sass(entry, ()))
        text = cubin.text(entry)
        assert kernel.arch == cubin.arch and kernel.immediates == unpack_from(f"<{len(text) // 4}I", text)[1::4]
        section = cubin.section(".nv.shared.{kernel}", entry)
        assert kernel.shared == max(section.size if section else 0, 1024 if cubin.arch >= 90 else 0)
        assert kernel.stack == (cubin.resources[entry].stack or 0)
        assert kernel.sass.kernel == entry and set(kernel.banks) <= {2, 3}
        assert kernel.offsets == tuple(sorted(kernel.offsets)) and bool(kernel.offsets) == (entry != "printer")
