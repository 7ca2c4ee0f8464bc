"""The Hopper attention, assembled by Triton: is the code as designed?"""

import re
import subprocess
from dataclasses import replace

import pytest

from gluon_kernels.hopper.config import HopperConfig, default_config
from gluon_kernels.offline import compile_offline

ASSEMBLED = {
    "bf16-128": default_config(90, "bf16", 128, None),
    "fp16-128-causal": default_config(90, "fp16", 128, "bottom-right"),
    "bf16-64": default_config(90, "bf16", 64, None),
    "bf16-64-causal": default_config(90, "bf16", 64, "top-left"),
    "bf16-64-causal-short": default_config(90, "bf16", 64, "top-left", 1024),
    "bf16-256": default_config(90, "bf16", 256, None),
    "fp8-128": default_config(90, "fp8e4nv", 128, None),
    "fp8-128-causal": default_config(90, "fp8e5", 128, "top-left"),
    "fp8-64": default_config(90, "fp8e5", 64, None, 1024),
    "fp8-64-causal": default_config(90, "fp8e4nv", 64, "top-left"),
    "fp8-64-long": default_config(90, "fp8e4nv", 64, None, 16384),
    "fp8-256": default_config(90, "fp8e4nv", 256, None),
    "fp8-256-causal": default_config(90, "fp8e5", 256, "top-left"),
    "fp8-128-own": replace(default_config(90, "fp8e4nv", 128, None), own_sums=4),
    "fp8-128-causal-own": replace(default_config(90, "fp8e5", 128, "top-left"), own_sums=4),
}


# Bytes of spill stores, the most of Triton 3.6 to 3.9. head_dim 256 has no registers to spare, nor has a guess with
# three consumers; that is faster all the same.
MOST_SPILLED = {"bf16-128": 24, "bf16-256": 32, "fp8-256": 16, "fp8-256-causal": 16}
MOST_SPILLED |= {"bf16-64": 216, "bf16-64-causal": 264, "fp8-64": 72, "fp8-64-long": 72, "fp8-64-causal": 204}


DAILY = ("bf16-64-causal-short", "fp8-128-own")


@pytest.mark.parametrize(
    "which", [pytest.param(name, marks=[] if name in DAILY else [pytest.mark.nightly]) for name in ASSEMBLED]
)
def test_assembles_as_designed(triton_cache, tmp_path, monkeypatch, capfd, which):
    pytest.importorskip("triton", reason="needs triton")
    config = ASSEMBLED[which]
    monkeypatch.setenv("TRITON_DUMP_PTXAS_LOG", "1")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "own"))  # a kernel from a cache has no log
    compiled = compile_offline(config)
    log = "".join(capfd.readouterr())
    ptx = compiled.asm["ptx"].rstrip("\0")
    assert compiled.metadata.name == config.name
    assert re.search(r"^\.target sm_90a", ptx, re.M)
    assert compiled.metadata.shared <= config.shared_bytes

    assert int(re.search(r"(\d+) bytes spill stores", log)[1]) <= MOST_SPILLED.get(which, 0)
    assert "C75" not in log, "the wgmma are serialized"
    assert "setmaxnreg" not in log, "setmaxnreg is ignored"

    # Each consumer computes scores before and in the loop over keys, values in and after it. K of a wgmma is 32 bytes.
    scores, values = config.head_dim // (32 // config.element_bytes), config.block_n // 16
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.asm["cubin"])
    opcodes = sass(cubin)
    mmas = [op.split(".")[0] for op in opcodes if op.startswith(("QGMMA", "HGMMA"))]
    wanted = {"QGMMA": 0, "HGMMA": 2 * values * config.consumers}
    wanted["QGMMA" if config.fp8 else "HGMMA"] += (2 + (config.own_sums > 1)) * scores * config.consumers
    assert {mma: mmas.count(mma) for mma in wanted} == wanted
    # setmaxnreg: down for the load partition, up for each consumer, and Triton's own around them.
    registers = {int(n) for n in re.findall(r"setmaxnreg\.inc\.sync\.aligned\.u32\s+(\d+)", ptx)}
    assert config.consumer_registers in registers
    # fp8: each block of V is widened in the loop and after it, by four warps. An instruction converts two numbers.
    widening = sum(op.startswith("F2FP.F16.E") for op in opcodes)
    assert widening == (2 * config.block_n * config.head_dim // (128 * 2) if config.fp8 else 0)
    check_overlap(opcodes, config, scores + values)


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


def check_overlap(opcodes: list[str], config: HopperConfig, loop_mmas: int) -> None:
    """Check the loop over keys: exponentials stand behind the wait for P V, and so does the search for a maximum, for
    a wrong guess.
    """
    waits = [i for i, op in enumerate(opcodes) if op.startswith("WARPGROUP.DEPBAR")]
    scores_waits = [i for i in waits if opcodes[i].endswith("0x1")]
    assert len(scores_waits) == config.consumers

    def count(opcode: str, where: list[str]) -> int:
        return sum(op.startswith(opcode) for op in where)

    half = config.block_n // 2  # how many scores a thread has
    for i in scores_waits:
        values_wait, last_wait = [j for j in waits if j > i][:2]
        between, softmax = opcodes[i:values_wait], opcodes[values_wait:last_wait]
        assert count("FMNMX", softmax) >= half
        # Exponentials of the guess and after a wrong guess, and shrink factors of two rows.
        assert 2 * half <= count("MUFU.EX2", softmax) <= 2 * half + 4
        assert not [op for op in between if op.startswith(("MUFU.EX2", "HGMMA", "QGMMA", "LDL", "STL"))]
        # All MMAs of an iteration stand before it, without a wait between them.
        before = max((j for j in waits if j < i), default=0)
        assert count("HGMMA", opcodes[before:i]) + count("QGMMA", opcodes[before:i]) >= loop_mmas
