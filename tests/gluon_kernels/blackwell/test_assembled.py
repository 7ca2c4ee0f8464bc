"""The Blackwell attention, assembled by Triton."""

import re

import pytest

from gluon_kernels.blackwell.config import SCALE_SLOTS, AttentionConfig, default_config
from gluon_kernels.hopper.config import HopperConfig
from gluon_kernels.mma.config import MmaConfig
from tests.gluon_kernels.support.blackwell_configs import CONFIGS, describe


@pytest.fixture
def compile_offline(triton_cache):
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels import compile_offline

    return compile_offline


DAILY = CONFIGS[-2:-1]  # test_emulated.py takes it too


@pytest.mark.parametrize(
    "config",
    [pytest.param(config, marks=[] if config in DAILY else [pytest.mark.nightly]) for config in CONFIGS],
    ids=describe,
)
def test_assembles_with_the_instructions_of_the_design(compile_offline, config, capfd):
    kernel = compile_offline(config)
    ptx = kernel.asm["ptx"]

    assert kernel.metadata.name == config.name
    assert re.findall(r"\.entry\s+([\w$]+)", ptx) == [config.name]
    assert re.search(r"^\.target sm_100a", ptx, re.M)
    assert kernel.metadata.shared <= config.shared_bytes

    # K of one MMA is 32 bytes. For both halves S is issued before and in the loop over blocks, P V in and after it.
    k = 32 // config.element_bytes
    assert len(re.findall(r"tcgen05\.mma\.", ptx)) == 4 * (config.head_dim // k) + 4 * (config.block_n // k)
    assert len(re.findall(r"tcgen05\.alloc\.", ptx)) == 1
    # TMA loads Q twice, K and V, in boxes of at most 128 swizzled bytes a row, and stores O in parts of two halves.
    boxes = max(1, config.head_dim * config.element_bytes // 128)
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.4d\.shared", ptx)) == 4 * boxes
    assert len(re.findall(r"cp\.async\.bulk\.tensor\.4d\.global", ptx)) == 2 * config.out_parts
    # The rings q, kv, o, scales, out and turns have two barriers per slot; s_ready and p_ready have one per half.
    rings = 2 + config.stages + 2 + 2 * SCALE_SLOTS + 2 + 1
    assert len(re.findall(r"mbarrier\.init", ptx)) == 2 * rings + 4
    assert ("add.rn.f32x2" in ptx) == config.packed_row_sum
    assert "C75" not in capfd.readouterr().err


# Accesses to memory that other partitions use, and barriers after which all threads of a partition have made theirs.
ACCESS = r"(tcgen05\.(?:ld|st)\b|(?:ld|st)\.shared|(?:ld|st)matrix|cp\.async\.bulk\.tensor\S*global\.shared)"
JOINED = r"(bar\.sync|barrier\.cta|cp\.async\.bulk\.wait_group\.read)"


def early_arrivals(ptx: str) -> list[str]:
    """Arrivals of one thread while others of its partition may still access the memory that it hands over.

    One thread arrives for four warps, so between their last access and its arrival there must be a barrier of the four
    warps; in the epilogue, whose one warp reads through TMA, the wait for these reads. Before that, stores to tensor
    memory must be waited for.
    """
    early, last, storing = [], "", False
    for line in ptx.splitlines():
        if re.search(ACCESS, line) or re.search(JOINED, line):
            last = line
            storing |= "tcgen05.st." in line
        elif "tcgen05.wait::st" in line:
            storing = False
        elif re.search(r"mbarrier\.arrive\.shared", line) and (storing or not re.search(JOINED, last)):
            early.append(line)
    return early


@pytest.mark.parametrize("config", [*DAILY, pytest.param(CONFIGS[-1], marks=pytest.mark.nightly)], ids=describe)
def test_a_partition_arrives_when_all_its_threads_are_done(compile_offline, config):
    ptx = compile_offline(config).asm["ptx"]
    assert len(re.findall(r"mbarrier\.arrive\.shared", ptx)) > 20
    assert early_arrivals(ptx) == []
    # Mutation check.
    assert early_arrivals(re.sub(r"bar\.sync[^;]*;", "", ptx))
    assert early_arrivals(ptx.replace("tcgen05.wait::st", "tcgen05.wait::ld"))


@pytest.mark.parametrize(
    ("dtype", "head_dim", "causal"),
    [
        ("bf16", 64, False),  # as in test_emulated.py
        pytest.param("fp16", 128, True, marks=pytest.mark.nightly),
        pytest.param("fp8e4nv", 128, True, marks=pytest.mark.nightly),
    ],
)
def test_the_default_config_spills_nothing_in_its_loops_over_key_blocks(compile_offline, dtype, head_dim, causal):
    """The loops are softmax (exp2) and correction (TMEM to TMEM). Spills elsewhere cost once per tile."""
    from triton.backends.nvidia.compiler import get_ptxas

    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import find_toolchain

    config = default_config(100, dtype, head_dim, causal=causal, seqlen_q=300, seqlen_k=333)
    toolchain = find_toolchain(get_ptxas(100).path)
    cubin = toolchain.assemble_or_raise(Ptx(compile_offline(config).asm["ptx"])).cubin
    sass = toolchain.disassemble(cubin)[config.name]
    counts = [sass.opcode_counts(loop.instructions) for loop in sass.innermost_loops]
    softmax = [c for c in counts if c["MUFU"] > config.block_n // 2]
    correction = [c for c in counts if c["LDTM"] and c["STTM"] and not c["MUFU"]]
    assert (len(softmax), len(correction)) == (4, 1)  # open and masked loop of each half
    assert not any(c["LDL"] + c["STL"] for c in softmax)
    # Triton 3.7 and 3.9: one address is read again.
    assert correction[0]["LDL"] + correction[0]["STL"] <= 1


@pytest.mark.parametrize("kind", [AttentionConfig, HopperConfig, MmaConfig])
def test_the_name_is_part_of_the_compile_hash(compile_offline, kind):
    """Renaming through `repr` alone would hit the cache entry of the other name."""
    from gluon_kernels.offline import kernel_source

    plain, other, again = (kernel_source(kind(name=name)).hash() for name in ("plain", "other", "plain"))
    assert plain == again != other


def test_an_unfit_config_is_refused_before_triton_sees_it(compile_offline):
    with pytest.raises(ValueError, match="arch 90: tcgen05"):
        compile_offline(arch=90)
    with pytest.raises(ValueError, match="head_dim 80"):
        compile_offline(head_dim=80)
