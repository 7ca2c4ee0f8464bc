"""ImageSummary agrees with Cubin, and refuses damaged images."""

import hashlib
from pathlib import Path

import pytest
from made_elf import Named, Part, made_elf, relocation
from repository import GOLDEN

from tritonhook.compare.diff import has_same_code
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.summary import summarise_image
from tritonhook.errors import CubinError
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.toolchain import Toolchain

CUBINS = sorted(GOLDEN.glob("*.cubin"))


@pytest.mark.parametrize("path", CUBINS, ids=lambda p: p.stem)
def test_agrees_with_cubin(path: Path) -> None:
    data = path.read_bytes()
    cubin, summary = Cubin.from_bytes(data), summarise_image(data, {})
    assert tuple(k.kernel for k in summary.kernels) == cubin.kernels
    for kernel in summary.kernels:
        resources = cubin.resources[kernel.kernel]
        for name in ("registers", "stack", "shared", "spill_stores", "spill_loads", "local_stores", "local_loads"):
            assert getattr(kernel, name) == getattr(resources, name)
        assert kernel.code_bytes == len(cubin.text(kernel.kernel)) > 0
        assert kernel.code_sha256 == hashlib.sha256(cubin.text(kernel.kernel)).hexdigest()
        assert kernel.scheduler_records == cubin.scheduler_records(kernel.kernel)
        if len(cubin.kernels) == 1:
            assert kernel.externs == resources.externs
    if len(cubin.kernels) == 1:
        assert summary.sections == tuple((s.role, s.size) for s in cubin.sections)
    assert summary.file_bytes == len(data)


@pytest.mark.parametrize("keep", [0, 10, 63, 64, 500, -1, -600])
def test_damage_is_an_error(keep: int) -> None:
    with pytest.raises(CubinError):
        summarise_image(CUBINS[0].read_bytes()[:keep], {})


def test_the_rest_of_the_program_has_a_hash() -> None:
    path = next(p for p in CUBINS if p.name == "sm_80.module.cubin")
    data, cubin = path.read_bytes(), Cubin.from_bytes(path.read_bytes())
    own = {f".text.{k}" for k in cubin.kernels} | {f".nv.constant0.{k}" for k in cubin.kernels}
    part = next(
        s
        for s in cubin.sections
        if s.name not in own and s.size and s.name.startswith((".text.", ".nv.constant", ".nv.global.init"))
    )
    changed = bytearray(data)
    changed[part.file_range[0]] ^= 1
    before, after = summarise_image(data, {}), summarise_image(bytes(changed), {})
    assert before.program_sha256 != after.program_sha256
    assert (before.kernels, before.sections) == (after.kernels, after.sections)


def test_another_callee_is_other_code(tools: Toolchain) -> None:
    """The linker fills in the address: the instructions do not tell which function is called."""
    text = ".version 8.0\n.target sm_90\n.extern .func NAME();\n.visible .entry k() { call NAME; ret; }"
    texts = (text.replace("NAME", name) for name in ("first", "other", "other"))
    images = [tools.assemble_or_raise(Ptx(text), ("-c",)).cubin for text in texts]
    summaries = [summarise_image(image.data, {}) for image in images]
    assert len({summary.kernel("k").code_sha256 for summary in summaries}) == 1
    first, other, again = (summary.code_hash("k") for summary in summaries)
    assert first != other == again
    assert [has_same_code(images[0], image, "k", "k") for image in images] == [True, False, False]


TABLE = """.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 table[4] = {1, 2, 3, %d};
.visible .entry k(.param .u64 out)
{
    .reg .b64 %%rd<4>;
    .reg .b32 %%r<2>;
    ld.param.u64 %%rd1, [out];
    mov.u64 %%rd2, table;
    ld.global.u32 %%r1, [%%rd2+12];
    st.global.u32 [%%rd1], %%r1;
    ret;
}
"""


def test_a_number_of_a_table_is_part_of_the_code(tools: Toolchain) -> None:
    """Given kernels of equal instructions that read a table with another number in it; then their codes differ."""
    made = [tools.assemble_or_raise(Ptx(TABLE % last), ("--gpu-name=sm_90",)).cubin.data for last in (4, 5, 4)]
    one, other, again = (summarise_image(data, {}) for data in made)
    assert one.kernels[0].code_sha256 == other.kernels[0].code_sha256
    assert one.code_hash("k") == again.code_hash("k") != other.code_hash("k")


def test_what_is_hashed_besides_the_instructions() -> None:
    """Device functions, constant banks but for parameters, initialised globals; the places that a linker fills."""
    places = relocation(16, 2, 1, 0) + relocation(32, 3, 2, 0)
    parts = [
        Part(".text.k", b"K" * 64), Part(".nv.constant0.k", b"p"), Part(".nv.constant3", b"three"),
        Part(".text.helper", b"H" * 16), Part(".nv.global.init", b"init"), Part(".nv.info", b"", 0x7000_0000),
        Part(".rela.text.k", places, 4), Part(".nv.constant2.k", b"two"),
    ]  # fmt: skip
    symbols = [Named("out", ""), Named("k", ".text.k", 2)]
    summary = summarise_image(made_elf(parts, symbols), {})
    (kernel,) = summary.kernels
    functions = b".text.helper\0" + b"H" * 16
    program = b".nv.constant2.{kernel}\0two.nv.constant3\0three.nv.global.init\0init" + functions
    linked = repr([(16, "out"), (32, "{kernel}")]).encode()
    assert kernel.code_sha256 == hashlib.sha256(b"K" * 64).hexdigest()
    assert kernel.linked_sha256 == hashlib.sha256(linked).hexdigest()
    assert summary.program_sha256 == hashlib.sha256(program).hexdigest()
    assert summary.functions_sha256 == hashlib.sha256(functions).hexdigest()
    for code, rest in ((summary.code_hash, program), (summary.own_code_hash, functions)):
        whole = kernel.code_sha256 + kernel.linked_sha256 + hashlib.sha256(rest).hexdigest()
        assert code("k") == hashlib.sha256(whole.encode()).hexdigest()[:16]
    assert (kernel.externs, kernel.registers, kernel.stack, kernel.shared) == (("out",), None, None, 0)
    with pytest.raises(CubinError, match=r"'other'.*k"):
        summary.kernel("other")
