"""Each field that is read of an image, from images made by hand."""

from __future__ import annotations

from collections.abc import Sequence

from made_elf import Named, Part, attribute, made_elf, numbers, relocation

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources

STORE, LOAD = bytes.fromhex("87790000000000000008000000000000"), bytes.fromhex("83790000000000000006000000000000")
NOTE = bytes(24) + b"\0".join([b"ptxas", b"Cuda compilation tools, V13.0.88", b" -arch sm_100a -O3 ", b"ab", b""])


def made(kernels: Sequence[str] = ("k",), flags: int = 100 << 8, abi: int = 8) -> Cubin:
    """Each kernel's code stores to local memory and loads twice; the linker fills in addresses of four symbols."""
    symbols = [Named("out", "", 0), Named(".nv.own"), Named("extra"), *(Named(k, f".text.{k}", 2) for k in kernels)]
    at = len(symbols) - len(kernels) + 1
    info = b"".join(
        attribute(kind, numbers(at + n, value + n))
        for n in range(len(kernels))
        for kind, value in ((0x2F, 40), (0x11, 8), (0x12, 16))
    )
    own = attribute(0x0F, numbers(3, 99)) + attribute(0x10, numbers(4, 5, 6)) + attribute(0x4C, b"\3")
    own += attribute(0x34, numbers(0, 0, 2, 64, 32, 7, 0, 1, 48)) + attribute(0x05, numbers(512, 1, 1))
    parts = [Part(".nv.info", info, 0x7000_0000)]
    for n, k in enumerate(kernels):
        places = relocation(16, 2, 1, 0) + relocation(32, 3, at + n, 4) + relocation(48, 5, 77, 0)
        parts += [
            Part(f".text.{k}", STORE + LOAD + LOAD + bytes(16), 1, 6 | 9 << 20),
            Part(f".nv.constant0.{k}", bytes(8)),
            Part(f".nv.info.{k}", own if n == 0 else b"", 0x7000_0000),
            Part(f".rela.text.{k}", places, 4),
            Part(f".nv.shared.{k}", kind=8, size=256 + n),
        ]
    return Cubin.from_bytes(made_elf([*parts, Part(".note.nv.tkinfo", NOTE, 7)], symbols, flags, abi))


def test_all_that_is_read_of_a_kernel() -> None:
    cubin = made()
    assert (cubin.arch, cubin.kernels, cubin.symbols) == (100, ("k",), {"k": 4})
    assert (cubin.ptxas_version, cubin.ptxas_arguments) == ("13.0.88", "-arch sm_100a -O3")
    assert cubin.indirect_targets == {"k": (32, 48, 64)}
    assert cubin.relocations == {"k": ((16, 2, "out"), (32, 3, "{kernel}"), (48, 5, "77"))}
    assert cubin.resources["k"] == Resources(
        registers=40, stack=8, min_stack=16, shared=256, barriers=3, threads=120, spill_stores=None, spill_loads=None,
        local_stores=4, local_loads=4, launch_bounds=("maxntid 512 1 1", "reqntid 4 5 6"), externs=("extra", "out"),
    )  # fmt: skip
    (shared,) = (one for one in cubin.sections if one.name == ".nv.shared.k")
    assert (shared.role, shared.kernel, shared.kind, shared.size) == (".nv.shared.{kernel}", "k", "SHT_NOBITS", 256)
    assert shared.data == b"" and shared.file_range[0] == shared.file_range[1]


def test_kernels_of_one_module_are_told_apart() -> None:
    cubin = made(("first", "other"), 90, 7)
    first, other = (cubin.resources[k] for k in ("first", "other"))
    assert (cubin.arch, cubin.symbols) == (90, {"first": 4, "other": 5})
    assert (first.registers, other.registers, other.stack, other.min_stack, other.shared) == (40, 41, 9, 17, 257)
    assert (other.barriers, other.threads, other.launch_bounds, first.externs) == (9, None, (), ("extra", "out"))
    assert other.externs == ("out",)  # what its own code refers to
    assert cubin.indirect_targets == {"first": (32, 48, 64), "other": ()}
    assert (cubin.relocations or {})["other"] == ((16, 2, "out"), (32, 3, "{kernel}"), (48, 5, "77"))


def test_code_of_before_sm_70_is_not_counted() -> None:
    old, new = (made(flags=number, abi=7).resources["k"] for number in (69, 70))
    assert (old.local_stores, old.local_loads, old.spill_stores, old.spill_loads) == (None,) * 4
    assert (new.local_stores, new.local_loads) == (4, 4)
