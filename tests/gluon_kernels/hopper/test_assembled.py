"""The Hopper attention, assembled by Triton: is the code as designed?"""

import re
import subprocess

import pytest

from gluon_kernels.hopper.config import HopperConfig, default_config
from gluon_kernels.offline import compile_offline, kernel_source

ASSEMBLED = {
    "bf16-128": default_config(90, "bf16", 128, None),
    "fp16-128-causal": default_config(90, "fp16", 128, "bottom-right"),
    "bf16-64": default_config(90, "bf16", 64, None),
    "bf16-64-causal": default_config(90, "bf16", 64, "top-left"),
    "bf16-64-causal-short": default_config(90, "bf16", 64, "top-left", 1024),
    "bf16-256": default_config(90, "bf16", 256, None),
    "fp8-128": default_config(90, "fp8e4nv", 128, None),
    "fp8-128-causal": default_config(90, "fp8e4nv", 128, "top-left"),
    "fp8-64": default_config(90, "fp8e5", 64, None),
    "fp8-128-lse": default_config(90, "fp8e4nv", 128, None, lse=True),
    "fp8-64-lse": default_config(90, "fp8e4nv", 64, None, lse=True),
    "fp8-64-long-causal": default_config(90, "fp8e4nv", 64, "top-left", 16384),
    "fp8-256-causal-lse": default_config(90, "fp8e5", 256, "top-left", lse=True),
    "fp8-256-causal": default_config(90, "fp8e5", 256, "top-left"),
}


# Bytes of spill stores, the most of Triton 3.6 to 3.9. Three consumers with 160 registers each have none to spare, and
# neither has head_dim 256. The load partition has 24 to 40 registers, too few to transpose V without spills.
MOST_SPILLED = {
    "bf16-128": 24,
    "bf16-256": 32,
    "fp8-128": 32,
    "fp8-64": 192,
    "fp8-64-long-causal": 192,
    "fp8-128-lse": 32,
    "fp8-256-causal-lse": 16,
    "fp8-256-causal": 32,
}


# How many of the spill instructions stand in the loop over keys.
MOST_IN_LOOP = {"fp8-64": 14, "fp8-64-long-causal": 14}


@pytest.mark.parametrize("which", ASSEMBLED)
def test_assembles_as_designed(triton_cache, tmp_path, which):
    pytest.importorskip("triton", reason="needs triton")
    from triton.backends.nvidia.compiler import get_ptxas

    from gluon_kernels.hopper.launch import codes_fit

    config = ASSEMBLED[which]
    if config.codes and not codes_fit(config.head_dim):
        pytest.skip("as this Triton writes it, ptxas serializes the MMAs: attention takes another form")
    compiled = compile_offline(config)
    ptx = compiled.asm["ptx"].rstrip("\0")
    assert compiled.metadata.name == config.name
    assert re.search(r"^\.target sm_90a", ptx, re.M)
    assert compiled.metadata.shared <= config.shared_bytes

    source, cubin = tmp_path / "kernel.ptx", tmp_path / "kernel.cubin"
    source.write_text(ptx)
    command = [get_ptxas(90).path, "-v", "--gpu-name=sm_90a", source, "-o", cubin]
    log = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert int(re.search(r"(\d+) bytes spill stores", log)[1]) <= MOST_SPILLED.get(which, 0)
    assert "C75" not in log, "the wgmma are serialized"
    assert "setmaxnreg" not in log, "setmaxnreg is ignored"

    # Each consumer computes scores before and in the loop over keys, values in and after it. K of a wgmma is 32 bytes.
    k = 32 // config.element_bytes
    scores, values = config.head_dim // k, config.block_n // k
    opcodes = sass(cubin)
    mma = "QGMMA" if config.fp8 else "HGMMA"
    sums = values if config.codes else 0
    assert sum(op.startswith(mma) for op in opcodes) == 2 * (scores + values + sums) * config.consumers
    assert sum(op.startswith(f"{mma}.64x8x32") for op in opcodes) == 2 * sums * config.consumers
    # setmaxnreg: down for the load partition, up for each consumer, and Triton's own around them.
    registers = {int(n) for n in re.findall(r"setmaxnreg\.inc\.sync\.aligned\.u32\s+(\d+)", ptx)}
    assert config.consumer_registers in registers
    # Each block of V is transposed in the loop and after it, by four warps. An ldmatrix loads 16 bytes per thread.
    transposing = sum(op.startswith("LDSM") and ".MT" in op for op in opcodes)
    assert transposing == (2 * config.block_n * config.head_dim // (128 * 16) if config.transpose_v else 0)
    check_overlap(opcodes, config, scores + values + sums, mma, MOST_IN_LOOP.get(which, 0))


def sass(cubin) -> list[str]:
    """The instructions in order: opcodes with modifiers and operands."""
    from triton import knobs

    text = subprocess.run([knobs.nvidia.nvdisasm.path, "-c", cubin], capture_output=True, text=True, check=True).stdout
    opcodes = []
    for line in text.splitlines():
        match = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?(.*?)\s*;", line)
        if match:
            opcodes.append(" ".join(match[1].split()))
    return opcodes


def check_overlap(opcodes: list[str], config: HopperConfig, loop_mmas: int, mma: str, spills: int) -> None:
    """Check the loop over keys: scores are searched for maxima between the wait for them and the wait for P V.

    With overlap exponentials stand there too, else behind the wait for P V.
    """
    waits = [i for i, op in enumerate(opcodes) if op.startswith("WARPGROUP.DEPBAR")]
    scores_waits = [i for i in waits if opcodes[i].endswith("0x2" if config.codes else "0x1")]
    assert len(scores_waits) == config.consumers

    def count(opcode: str, where: list[str]) -> int:
        return sum(op.startswith(opcode) for op in where)

    half = config.block_n // 2  # how many scores a thread has
    for i in scores_waits:
        values_wait, last_wait = [j for j in waits if j > i][:2]
        between = opcodes[i:values_wait]
        softmax = between if config.overlap else opcodes[values_wait:last_wait]
        assert count("FMNMX", softmax if config.guess else between) >= half
        # int_max compares a row's block_n / 4 scores with one, then with two more at a time; floats only as a fallback.
        assert count("VIMNMX3", between) == (2 * (config.block_n // 8 - 1) if config.int_max else 0)
        # With guess there are exponentials of the guess and after a wrong guess. And shrink factors of two rows.
        exponentials = 0 if config.codes else half * (32 - config.by_fma) // 16 if config.guess else half
        assert exponentials <= count("MUFU.EX2", softmax) <= exponentials + 4
        assert config.overlap or not count("MUFU.EX2", between)
        assert not count(mma, between)
        assert count("LDL", between) + count("STL", between) <= spills
        # All MMAs of an iteration stand before it, without a wait between them.
        before = max((j for j in waits if j < i), default=0)
        assert count(mma, opcodes[before:i]) >= loop_mmas


def test_the_name_is_part_of_the_compile_hash():
    pytest.importorskip("triton", reason="needs triton")
    one, other = (kernel_source(HopperConfig(name=name)).hash() for name in ("one", "other"))
    assert one != other
