"""Compares the emulator's arithmetic with a GPU, bit by bit: tensor cores, conversions, roundings, special functions.

Each instruction runs on random and special operands (benchmarks/numerics/probe_*.py), and its results are compared with
`tritonhook.emulate`. The special functions are approximations: of these the result says how often, and by how many last
bits at most, the GPU differs from the model. --samples FOLDER keeps operands and results, so that the model can be
corrected where no GPU is. Needs sm_90a (H100, H200).
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import environment
from benchmarks.numerics.probe_kernels import THREADS, Gpu
from benchmarks.numerics.probe_matrices import Product, products
from benchmarks.numerics.probe_numbers import Operation, approximations, drawn, operations

NEEDS = ("gpu", "numpy")
OUTPUTS = 1_000_000  # of each product
SAMPLES = 1 << 20  # of each operation
KEPT_BLOCKS, KEPT_SAMPLES, LISTED = 6, 4096, 8
SMALL = {"OUTPUTS": 20_000, "SAMPLES": 1 << 12}
SEED = 20261123


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--samples", type=Path, help="a folder for operands and results of the GPU (npz)")
    parser.add_argument("--only", default="", help="instructions whose name has this in it")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    gpu, kept = Gpu(), {}
    rows: dict[str, list[dict[str, Any]]] = {"products": [], "operations": [], "special": []}
    with np.errstate(all="ignore"):
        for product in products():
            if arguments.only in product.name:
                rows["products"].append(_guarded(product.name, lambda p=product: compare_product(gpu, p, kept)))
        for operation in operations():
            if arguments.only in operation.name:
                rows["operations"].append(_guarded(operation.name, lambda o=operation: compare_operation(gpu, o, kept)))
        for name, operation in approximations():
            if arguments.only in operation.name:
                rows["special"].append(_guarded(operation.name, lambda n=name, o=operation: special(gpu, n, o, kept)))
    if arguments.samples:
        arguments.samples.mkdir(parents=True, exist_ok=True)
        for part in ("products", "operations", "special"):
            found = {name.split("|", 1)[1]: value for name, value in kept.items() if name.startswith(part)}
            np.savez_compressed(arguments.samples / f"{part}.npz", **found)
    return {
        "what": "the emulator's arithmetic against a GPU, bit by bit",
        "summary": _summary(rows),
        "environment": environment("numpy") | {"gpu": gpu.name, "cuda": gpu.driver.version()},
        **rows,
    }


def _guarded(name: str, work: Any) -> dict[str, Any]:
    """A row; one that fails does not lose the others."""
    start = time.perf_counter()
    try:
        found = work()
    except Exception as error:
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    print(f"{name}: { ({k: v for k, v in found.items() if k not in ('examples', 'ulps')}) }", flush=True)
    return {"instruction": name} | found | {"seconds": time.perf_counter() - start}


def _summary(rows: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    exact = [row for part in ("products", "operations") for row in rows[part]]
    return {
        "instructions": len(exact),
        "equal": sum(row.get("different") == 0 for row in exact),
        "different": {row["instruction"]: row.get("different", "error") for row in exact if row.get("different") != 0},
        "special_functions": {row["instruction"]: row.get("most_ulps") for row in rows["special"]},
    }


def compare_product(gpu: Gpu, product: Product, kept: dict[str, np.ndarray]) -> dict[str, Any]:
    draw = np.random.default_rng(SEED)
    blocks = max(6, OUTPUTS // product.outputs_per_block)
    different = compared = 0
    examples: list[Any] = []
    while blocks > 0:
        given, tiles, expected = product.make(draw, min(blocks, 240))
        found = gpu.run(product.probe, given, tiles)
        if not compared:
            _keep_blocks(kept, product.name, given, tiles, found)
        wrong = found != expected
        different += int(wrong.sum())
        compared += wrong.size
        for word, thread in np.argwhere(wrong)[: LISTED - len(examples)]:
            examples.append([int(word), int(thread), f"{found[word, thread]:08x}", f"{expected[word, thread]:08x}"])
        blocks -= 240
    return {"words": compared, "different": different} | ({"examples": examples} if examples else {})


def _keep_blocks(
    kept: dict[str, np.ndarray], name: str, given: np.ndarray, tiles: np.ndarray | None, found: np.ndarray
) -> None:
    """A block of each kind of operands: those lie behind one another."""
    blocks = given.shape[1] // THREADS
    chosen = np.linspace(0, blocks - 1, KEPT_BLOCKS).astype(int)
    lanes = (chosen[:, None] * THREADS + np.arange(THREADS)).reshape(-1)
    kept[f"products|{name}|given"], kept[f"products|{name}|found"] = given[:, lanes], found[:, lanes]
    if tiles is not None:
        kept[f"products|{name}|tiles"] = tiles[chosen]


def compare_operation(gpu: Gpu, operation: Operation, kept: dict[str, np.ndarray]) -> dict[str, Any]:
    draw = np.random.default_rng(SEED)
    count = max(SAMPLES // operation.scale, THREADS)
    given = np.stack([word for kind in operation.kinds for word in drawn(draw, kind, count)])
    found, expected = gpu.run(operation.probe, given), operation.expected(given)
    wrong = (found != expected).any(0)
    places = np.flatnonzero(wrong)[:KEPT_SAMPLES]
    if len(places):
        kept[f"operations|{operation.name}|given"] = given[:, places]
        kept[f"operations|{operation.name}|found"] = found[:, places]
    examples = [[[f"{w:08x}" for w in one[:, at]] for one in (given, found, expected)] for at in places[:LISTED]]
    return {"samples": count, "different": int(wrong.sum())} | ({"examples": examples} if examples else {})


def special(gpu: Gpu, name: str, operation: Operation, kept: dict[str, np.ndarray]) -> dict[str, Any]:
    """Every 409th float32 of both signs, and all 2^23 fractions of one octave (two for rsq and sqrt)."""
    spread = np.arange(0, 1 << 32, 409, np.uint64).astype(np.uint32)
    octave = np.uint32(0x3F80_0000) + np.arange(1 << (24 if name in ("rsq", "sqrt") else 23), dtype=np.uint32)
    if name in ("ex2", "sin", "cos"):  # the fraction itself
        octave = (np.arange(1 << 23) / (1 << 23)).astype(np.float32).view(np.uint32)
    parts = {"spread": spread, "octave": octave} if SAMPLES > 1 << 12 else {"spread": spread[::997]}
    row: dict[str, Any] = {"samples": 0, "most_ulps": 0, "not_equal": 0}
    for part, given in parts.items():
        found, expected = gpu.run(operation.probe, given[None])[0], operation.expected([given])[0]
        distance = _ordered(found) - _ordered(expected)
        both = _is_nan(found) & _is_nan(expected)
        distance = np.where(both, 0, distance)
        row["samples"] += len(given)
        row["not_equal"] += int((distance != 0).sum())
        row["most_ulps"] = max(row["most_ulps"], int(np.abs(distance).max()))
        near = np.bincount(np.clip(distance, -8, 8) + 8, minlength=17)
        row.setdefault("ulps", {})[part] = {str(n - 8): int(c) for n, c in enumerate(near) if c}
        worst = np.argsort(-np.abs(distance), kind="stable")[:LISTED]
        row.setdefault("examples", {})[part] = [
            [f"{given[at]:08x}", f"{found[at]:08x}", f"{expected[at]:08x}"] for at in worst if distance[at]
        ]
        absolute, relative = _errors(given, found, expected)
        row["most_absolute"] = max(row.get("most_absolute", 0.0), absolute)
        row["most_relative"] = max(row.get("most_relative", 0.0), relative)
        if part == "octave" and name not in ("sqrt", "cos") and (".ftz" in operation.name or name == "tanh"):
            kept[f"special|{operation.name}|ulps"] = np.clip(distance, -127, 127).astype(np.int8)
    return row


def _errors(given: np.ndarray, found: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """The largest absolute error for arguments of at most pi, and the largest relative one of normal numbers."""
    x, y, exact = (codes.view(np.float32).astype(np.float64) for codes in (given, found, expected))
    fine = np.isfinite(y) & np.isfinite(exact)
    error = np.where(fine, np.abs(y - exact), 0.0)
    normal = fine & (np.abs(exact) >= 2.0**-126)
    return float(error[np.abs(x) <= np.pi].max()), float((error[normal] / np.abs(exact[normal])).max())


def _ordered(codes: np.ndarray) -> np.ndarray:
    """Integers in the order of the numbers, so that neighbours differ by one."""
    size = (codes & np.uint32(0x7FFF_FFFF)).astype(np.int64)
    return np.where(codes >> 31 == 1, -size, size)


def _is_nan(codes: np.ndarray) -> np.ndarray:
    return (codes & np.uint32(0x7FFF_FFFF)) > 0x7F80_0000
