"""The pool's arithmetic against every public measurement, and the stack needs that a cubin states."""

from __future__ import annotations

import pytest
from repository import GOLDEN

from tritonhook.cubin.image import Cubin
from tritonhook.cubin.resources import Resources
from tritonhook.errors import UsageError
from tritonhook.memory.prediction import (
    GPUS,
    MIB,
    UNBOUNDED,
    Bracket,
    GpuSpecs,
    StackNeed,
    find_gpu,
    make_gpu,
    net_growth,
    parse_bytes,
    pool_bytes,
    predict,
    stack_need,
    stack_needs,
)

BULK = "__cuda_syscall_cp_async_bulk_unicast"
TILE_2D = "__cuda_syscall_cp_async_bulk_tensor_2d_tile_unicast"
TILE_4D = "__cuda_syscall_cp_async_bulk_tensor_4d_tile_unicast"

# GPU, syscall, frame, MiB. The form of the formula and both ends of its bracket were chosen with these in view: a
# fit, not a test. Sources: forums.developer.nvidia.com and GitHub issues, listed in docs/explanation/gpu-memory.md.
FITTED = [
    ("RTX 5090", TILE_2D, 8, 3728.0),
    ("GB10", TILE_2D, 8, 1077.0),
    ("RTX 5090 Laptop", TILE_4D, 8, 1634.0),
    ("RTX 5070 Ti", TILE_2D, 8, 1430.0),
]
# Published in words or as another quantity ("about 3.8 GiB", a total with the context in it); not fitted to.
HELD_OUT = [
    ("RTX PRO 6000 Blackwell", BULK, 0, 3.8 * 1024),
    ("RTX 5090", TILE_2D, 8, 3502.0),  # vLLM: the KV budget fell from 5.18 to 1.76 GiB
    ("RTX 5090", TILE_2D, 8, 3.5e9 / MIB),  # TileLang: "~3.5 GB"
]


def growth(gpu: str, syscall: str, frame: int) -> Bracket:
    need = stack_need("k", Resources(stack=frame, min_stack=frame, externs=(syscall,)))
    found = predict([need], find_gpu(gpu)).growth
    assert found is not None
    return found


@pytest.mark.parametrize(("gpu", "syscall", "frame", "mib"), [*FITTED, *HELD_OUT])
def test_published_measurements_lie_in_the_bracket(gpu, syscall, frame, mib) -> None:
    bracket = growth(gpu, syscall, frame)
    assert mib * MIB in bracket
    assert bracket.high / bracket.low < 1.2  # no bracket that holds anything


def test_known_frames_on_an_h100_are_exact() -> None:
    h100 = find_gpu("H100")
    # seen on an H100 SXM: 1,024 -> 4,096 bytes per thread took 792.0 MiB, 4,096 -> 14,608 took 2,710
    assert net_growth(4096, h100) / MIB == 792.0
    assert net_growth(14608, h100, before=4096) / MIB == pytest.approx(2710.1, abs=0.05)
    bracket = predict([StackNeed("k", 4096, Bracket(4096, 4096))], h100).growth
    assert bracket == Bracket(792 * MIB, 792 * MIB)


def test_the_deepest_kernel_decides_not_the_sum() -> None:
    h100 = find_gpu("H100")
    needs = [StackNeed(name, size, Bracket(size, size)) for name, size in (("a", 2048), ("b", 8192), ("c", 4096))]
    together, alone = predict(needs, h100), predict(needs[1:2], h100)
    assert together.growth == alone.growth
    assert together.deepest is needs[1]
    assert predict(needs[::-1], h100).growth == together.growth
    assert "b needs 8,192 bytes" in together.cause


def test_a_stack_that_every_context_has_costs_nothing() -> None:
    for size, expected in ((0, 0), (1024, 0), (1040, 16)):
        bracket = predict([StackNeed("k", size, Bracket(size, size))], find_gpu("RTX 5090")).growth
        assert bracket is not None
        assert (bracket == Bracket(0, 0)) == (expected == 0)
        assert (bracket.low > 0) == (expected > 0)


def test_syscalls_are_found_by_symbols_never_by_the_frame() -> None:
    # the bulk copy's frame is 0, and it costs as much as the others
    bulk = stack_need("k", Resources(stack=0, min_stack=0, externs=(BULK,)))
    assert bulk.stack == Bracket(14_448, 14_448)
    assert bulk.syscalls == (BULK,)
    # a frame of 8 bytes without a syscall costs nothing
    assert stack_need("k", Resources(stack=8, min_stack=8)).stack == Bracket(8, 8)
    # a variant of which no measurement is published: between the smallest and the largest
    other = stack_need("k", Resources(stack=16, min_stack=16, externs=(TILE_2D.replace("2d_tile", "5d_im2col"),)))
    assert other.stack == Bracket(14_448, 14_608 + 16)
    # a syscall of another kind: at most as much as the largest
    assert stack_need("k", Resources(stack=0, externs=("__cuda_syscall_other",))).stack == Bracket(0, 14_608)
    assert stack_need("k", Resources(stack=16, externs=("__cuda_syscall_other",))).stack == Bracket(16, 14_608 + 16)


def test_golden_cubins() -> None:
    (cluster,) = stack_needs(Cubin.from_bytes((GOLDEN / "sm_120a.tensor_load.cluster.cubin").read_bytes()))
    (cta,) = stack_needs(Cubin.from_bytes((GOLDEN / "sm_120a.tensor_load.cta.cubin").read_bytes()))
    assert cluster.syscalls == (TILE_2D,)
    assert (cta.syscalls, cta.stack) == ((), Bracket(0, 0))
    module = {n.kernel: n for n in stack_needs(Cubin.from_bytes((GOLDEN / "sm_90a.module.cubin").read_bytes()))}
    assert module["foo"].frame == 48
    assert module["printer"].buffers == (("printf buffer", 64 * MIB),)
    assert module["foo_bar"].buffers == ()


@pytest.mark.parametrize(
    ("resources", "unbounded", "reason"),
    [
        (Resources(stack=0, min_stack=UNBOUNDED), False, "not bounded"),
        (Resources(stack=0, min_stack=0), True, "not bounded"),
        (Resources(), False, "neither FRAME_SIZE nor MIN_STACK_SIZE"),
    ],
)
def test_unknown_is_none_and_says_why(resources, unbounded, reason) -> None:
    need = stack_need("k", resources, unbounded)
    assert need.stack is None
    assert reason in (need.why_unknown or "")
    known = StackNeed("other", 0, Bracket(0, 0))
    prediction = predict([known, need], find_gpu("H100"))
    assert prediction.growth is None  # one unknown kernel makes the whole unknown, never 0
    assert prediction.cause.startswith("k: ")


@pytest.mark.parametrize("sizes", [{}, {"stack": 0, "min_stack": UNBOUNDED}])
def test_what_is_known_of_a_kernel_without_a_bound_is_kept(sizes) -> None:
    need = stack_need("k", Resources(externs=("vprintf", "malloc", "free", BULK), **sizes))
    assert (need.stack, need.syscalls) == (None, (BULK,))
    assert need.buffers == (("printf buffer", 64 * MIB), ("device heap", 148 * MIB))


def test_a_kernel_whose_stack_is_not_known_is_not_the_deepest() -> None:
    unknown, flat = StackNeed("unknown", None, None), StackNeed("flat", 0, Bracket(0, 0))
    assert predict([unknown, flat], find_gpu("H100")).deepest is flat
    assert predict([unknown], find_gpu("H100")).deepest is None


@pytest.mark.parametrize(
    "name", ["RTX 5090", "rtx 5090", "NVIDIA GeForce RTX 5090", "GeForce RTX 5090"], ids=lambda n: n.replace(" ", "-")
)
def test_gpus_are_found_as_people_and_drivers_write_them(name) -> None:
    assert find_gpu(name).sms == 170


def test_a_laptop_is_not_its_desktop_and_the_unknown_is_refused() -> None:
    assert find_gpu("NVIDIA GeForce RTX 5090 Laptop GPU").sms == 82
    assert find_gpu("NVIDIA H100 80GB HBM3").sms == 132
    assert find_gpu("NVIDIA RTX PRO 6000 Blackwell Workstation Edition").sms == 188
    with pytest.raises(UsageError, match=r"RTX 6090.*--sms.*RTX 5090"):
        find_gpu("RTX 6090")


def test_every_gpu_has_a_source_and_a_name_of_its_own() -> None:
    assert len({gpu.name for gpu in GPUS}) == len(GPUS)
    for gpu in GPUS:
        assert gpu.source and find_gpu(gpu.name) is gpu
        assert gpu.threads_per_sm in (1536, 2048)


def test_gpus_by_number() -> None:
    assert make_gpu(170, 1536).resident_threads == 261_120
    assert make_gpu(170, 1536) == GpuSpecs("170 SMs", 170, 1536, None, "given on the command line")
    assert isinstance(pool_bytes(1025, make_gpu(7, 1536)), int)
    with pytest.raises(UsageError, match="--threads-per-sm"):
        make_gpu(170, None)
    with pytest.raises(UsageError, match="above 0"):
        make_gpu(0, 1536)
    with pytest.raises(UsageError, match="not a multiple of 32"):
        GpuSpecs("odd", 1, 100, None, "")


@pytest.mark.parametrize(
    ("text", "size"), [("256MiB", 256 * MIB), ("1.5 GiB", 1536 * MIB), ("4096", 4096), ("2kib", 2048), ("7B", 7)]
)
def test_sizes(text, size) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "256MB", "many", "1..5GiB", "-1MiB"])
def test_sizes_that_are_none(text) -> None:
    with pytest.raises(UsageError, match="not a size"):
        parse_bytes(text)


def test_each_end_of_the_bracket_is_that_of_the_kernel_which_reaches_furthest() -> None:
    """Given a kernel whose need is wide and one whose need is narrow and within, the lower end is the narrow one's."""
    gpu = find_gpu("RTX 5090")
    wide = StackNeed("wide", 8, Bracket(14_448, 14_616), ())
    narrow = StackNeed("narrow", 8, Bracket(14_512, 14_520), ())
    both, one, other = predict([wide, narrow], gpu), predict([wide], gpu), predict([narrow], gpu)
    assert both.growth == Bracket(other.growth.low, one.growth.high)
    assert one.growth.low < other.growth.low
