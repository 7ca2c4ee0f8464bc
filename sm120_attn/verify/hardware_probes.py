"""Test on a GPU the hardware behaviour that the FP8 kernels assume. Part of the self-test.

    lane map   which bytes of V ldmatrix loads into each lane; kernels/mma_fp8.py depends on it
    mma        whether block-scaled MMAs with all scales 1 have the bits of plain MMAs, and how exact plain MMAs are
    banks      clocks of ldmatrix at the kernels' lane addresses, with and without the rotation of rows that keeps eight
               lanes in different banks

sm_90a has neither ldmatrix of bytes nor block-scaled MMAs. There the probes test the instructions that replace them,
and the clocks are those of ldmatrix of 16 bits at the same addresses, which has the same bank conflicts.
"""

from __future__ import annotations

from typing import Any

from ..kernels.probe.config import BANK_LOADS, BANK_WARPS, CHAINS, ORDERS, PATHS, ROW_BYTES, ProbeConfig

WARP = 32
PRODUCTS = 512  # number of MMAs of random bytes
# Allowed error of an MMA, relative to the sum of absolute products. A register in the wrong lane causes errors near 1.
EXACT = 2.0**-10
FREE = 1.1  # two orders whose clocks differ by at most this factor have the same bank conflicts


def run() -> dict[str, Any]:
    """Run all probes. "passed" depends on results only, not on clocks."""
    from ..launch.prepare import device_facts

    arch, _ = device_facts(0)
    found: dict[str, Any] = {
        "arch": arch,
        "stand_ins": not ProbeConfig(arch).byte_wise,
        "lane_map": lane_map(arch),
        "mma": {dtype: mma(arch, dtype) for dtype in ("e4m3", "e5m2")},
        "banks": banks(arch),
    }
    found["passed"] = all(found["lane_map"].values()) and all(one["passed"] for one in found["mma"].values())
    return found


def summary(found: dict[str, Any]) -> str:
    mma = found["mma"]["e4m3"]
    same = {True: "the same bits", False: "OTHER BITS", None: "no such instruction"}[mma["scaled_equals_plain"]]
    clocks = ", ".join(f"{order} {value:.2f}" for order, value in found["banks"]["clocks_per_load"].items())
    lanes = "as expected" if all(found["lane_map"].values()) else "NOT AS EXPECTED"
    return (
        f"lane map {lanes}; block-scaled MMA: {same}; "
        f"plain MMA off by {mma['largest_error']:.1e}; clocks per ldmatrix: {clocks}"
    )


def launched(config: ProbeConfig, source: Any, words: int, blocks: int = 1) -> Any:
    """Launch a probe on `source`; return its result of `words` int32."""
    import torch

    from ..compile import abi, cache
    from ..launch.hot_path import enter

    kernel = cache.get(config)
    target = torch.zeros(words, dtype=torch.int32, device=source.device)
    fields: dict[str, Any] = {
        "source": (source.data_ptr(), source.shape, source.stride()),
        "target": (target.data_ptr(), target.shape, target.stride()),
        "blocks": blocks,
        "stream": 0,
    }
    values: list[Any] = []
    for slot in kernel.layout.slots:
        field = fields[slot.name]
        values += abi.tensor_values(slot, *field) if slot.rank else (field,)
    buffer = abi.ArgumentBuffer(kernel.layout)
    buffer.fill(values)
    enter(kernel, buffer, kernel.layout.places["stream"], source.get_device())
    torch.cuda.synchronize(source.device)
    return target


# --- lane map ----------------------------------------------------------------------------------------------------


def lane_map(arch: str) -> dict[str, bool]:
    """Check for each path of V whether every lane gets the expected bytes."""
    import torch

    # 32 rows of 16 bytes; neighbouring bytes differ.
    rows = (torch.arange(WARP * ROW_BYTES, dtype=torch.int64) * 73 % 251).to(torch.uint8).view(WARP, ROW_BYTES)
    source = rows.contiguous().view(torch.int32).flatten().cuda()
    got = launched(ProbeConfig(arch, "lane map"), source, len(PATHS) * WARP * 4).cpu()
    got = got.view(torch.uint8).view(len(PATHS), WARP, 4, 4).tolist()
    return {path: got[i] == expected(path, rows.tolist()) for i, path in enumerate(PATHS)}


def expected(path: str, rows: list[list[int]]) -> list[list[list[int]]]:
    """Compute the expected bytes of each register of each lane: the A operand of V^T, 16 columns by 32 keys.

    The native path has columns g and g+8; the portable path has columns 2g and 2g+1, and other keys (mma_fp8.py).
    """
    lanes = []
    for lane in range(WARP):
        g, t = divmod(lane, 4)
        if path == "native":
            words = [[rows[16 * half + 4 * t + i][g + 8 * h] for i in range(4)] for half in range(2) for h in range(2)]
        else:
            keys = (2 * t, 2 * t + 1, 8 + 2 * t, 9 + 2 * t)
            words = [[rows[16 * half + key][2 * g + h] for key in keys] for half in range(2) for h in range(2)]
        lanes.append(words)
    return lanes


# --- products ----------------------------------------------------------------------------------------------------


def mma(arch: str, dtype: str) -> dict[str, Any]:
    import torch

    config = ProbeConfig(arch, "mma", dtype)
    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[dtype]
    bits = torch.randint(0, 256, (PRODUCTS, WARP, 32), generator=torch.Generator().manual_seed(5)).to(torch.uint8)
    bits[~torch.isfinite(bits.view(kind).float())] = 0
    source = bits.contiguous().view(torch.int32).flatten().cuda()
    kinds = len(config.scalings)
    got = launched(config, source, PRODUCTS * kinds * WARP * 4, PRODUCTS).view(torch.float32)
    got = got.view(PRODUCTS, kinds, WARP, 4).cpu()
    a, b = operands(bits.view(kind).double())
    wanted, scale = a @ b, (a.abs() @ b.abs()).clamp(min=2.0**-60)
    error = ((product(got[:, 0]).double() - wanted).abs() / scale).max().item()
    same = None
    if kinds == 2:
        same = torch.equal(got[:, 0].contiguous().view(torch.int32), got[:, 1].contiguous().view(torch.int32))
    return {
        "products": PRODUCTS,
        "scaled_equals_plain": same,
        "largest_error": error,
        "passed": error <= EXACT and same is not False,
    }


def operands(values: Any) -> tuple[Any, Any]:
    """Build A [products, 16, 32] and B [products, 32, 8] from the lanes' values: a lane has 16 of A and 8 of B."""
    import torch

    count = values.shape[0]
    a, b = torch.zeros(count, 16, 32, dtype=values.dtype), torch.zeros(count, 32, 8, dtype=values.dtype)
    for lane in range(WARP):
        g, t = divmod(lane, 4)
        for word in range(6):
            four = values[:, lane, 4 * word : 4 * word + 4]
            if word < 4:
                k = 16 * (word // 2) + 4 * t
                a[:, g + 8 * (word % 2), k : k + 4] = four
            else:
                k = 16 * (word - 4) + 4 * t
                b[:, k : k + 4, g] = four
    return a, b


def product(lanes: Any) -> Any:
    """Build the result matrices [products, 16, 8] from the lanes' values."""
    import torch

    d = torch.zeros(lanes.shape[0], 16, 8)
    for lane in range(WARP):
        g, t = divmod(lane, 4)
        for i in range(4):
            d[:, g + 8 * (i // 2), 2 * t + i % 2] = lanes[:, lane, i]
    return d


# --- bank conflicts ----------------------------------------------------------------------------------------------


def banks(arch: str) -> dict[str, Any]:
    """Measure an SM's clocks per ldmatrix of four matrices, with 16 warps that do nothing else: the best of 5 runs."""
    import torch

    config = ProbeConfig(arch, "banks")
    threads = WARP * BANK_WARPS
    source = torch.zeros(4, dtype=torch.int32, device="cuda")
    runs = []
    for _ in range(5):
        found = launched(config, source, 2 * len(ORDERS) * threads).view(len(ORDERS), 2, threads)
        runs.append(found[:, 0].amax(1).tolist())
    clocks = [min(run[i] for run in runs) for i in range(len(ORDERS))]
    per_load = {order: count / (BANK_WARPS * CHAINS * BANK_LOADS) for order, count in zip(ORDERS, clocks, strict=True)}
    return {
        "instruction_of_v": "ldmatrix.m16n16.x2.trans.b8" if config.byte_wise else "ldmatrix.m8n8.x4.b16",
        "clocks": dict(zip(ORDERS, clocks, strict=True)),
        "clocks_per_load": per_load,
        "runs": [dict(zip(ORDERS, run, strict=True)) for run in runs],
        **{
            f"v_without_conflicts_d{d}": per_load[f"V D{d} turned"] <= FREE * per_load[f"K D{d} straight"]
            for d in (128, 64)
        },
        **{f"turn_needed_d{d}": per_load[f"V D{d} straight"] > FREE * per_load[f"V D{d} turned"] for d in (128, 64)},
    }
