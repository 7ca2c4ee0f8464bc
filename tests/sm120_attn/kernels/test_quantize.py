"""Quantisation to FP8: how the work is cut, and what is assembled. Results: test_emulated_checks.py."""

import pytest

from sm120_attn.kernels.quantize.config import CHUNKS, QuantizeConfig, cut


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 5_000, 32_768, 32_769, 1_000_000])
@pytest.mark.parametrize("head_dim", [32, 72, 128, 256])
def test_chunks_cover_a_head_and_are_few_enough_for_the_second_pass(rows: int, head_dim: int) -> None:
    config = QuantizeConfig(head_dim=head_dim)
    work = cut(config, 6, rows, 50 << 20)
    vectors = rows * config.row_vectors
    assert work.chunks <= CHUNKS <= config.threads
    assert work.chunks * work.pieces * config.piece >= vectors
    assert (work.chunks - 1) * work.pieces * config.piece < vectors


@pytest.mark.parametrize(
    "arch", ["sm_120a", *(pytest.param(a, marks=pytest.mark.nightly) for a in ("sm_121a", "sm_90a"))]
)
@pytest.mark.parametrize(
    "changed",
    [pytest.param({}, marks=pytest.mark.nightly), {"whole": True}, {"dtype": "fp32", "tensors": 3, "varlen": True}],
)
def test_the_kernels_assemble_and_keep_their_values_in_registers(arch: str, changed: dict) -> None:
    pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")
    from sm120_attn.compile.compiler import compile_offline

    cubin_module = pytest.importorskip("tritonhook.cubin.image", reason="machine code is read with tritonhook")
    from tritonhook.cubin.sass import parse_nvdisasm
    from tritonhook.errors import ToolError
    from tritonhook.ptxas.tool import find_nvdisasm
    from tritonhook.ptxas.toolchain import run_nvdisasm

    # when: two launches of two kernels, or one of one
    image = cubin_module.Cubin.from_bytes(compile_offline(QuantizeConfig(arch=arch, **changed)).cubin)
    try:
        listing = run_nvdisasm(find_nvdisasm(), image.data)
    except ToolError as error:
        pytest.skip(str(error))
    functions = parse_nvdisasm(listing, {name: image.text(name) for name in image.kernels}, image.indirect_targets)

    # then
    assert len(functions) == (1 if changed.get("whole") else 2)
    # A division has a slow path, a function for whose call some registers may be put aside.
    assert all(sum(i.base_opcode in ("LDL", "STL") for i in code.instructions) <= 8 for code in functions.values())
    assert not any(image.resources[name].syscalls for name in image.kernels)
