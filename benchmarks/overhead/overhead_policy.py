"""What a policy costs beside a rename that does the same: per compile, per disk-cache hit, per launch, per lookup.

    python -m benchmarks overhead_policy [--rounds N] [--out FILE]

Both sides give the same kernels the prefix cutlass_: one by rename=, the other by a policy whose entries have the lever
`name`. So the difference is what the policy adds: the hash of the PTX, and the check of the machine code. Needs no GPU.
The sides are interleaved round by round in ABBA order; figures are medians of paired differences, as in overhead.py,
which has the measurements. They are seconds of processor time, of this process and of ptxas, so that other programs on
the machine count less.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common import environment, interleave, median_difference
from benchmarks.overhead.overhead import Side, hits, large_ptx, launches, memory_folder, new_folders, nothing, stand_in


def processor_seconds(call: Callable[[], Any]) -> float:
    """The processor time of a call, with that of the child processes that ended meanwhile."""

    def used() -> float:
        usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before = used()
    call()
    return used() - before


QUICK = ("--rounds", "1")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=40, help="rounds of compiles (default: 40)")


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    load = [os.getloadavg()[0]]
    with tempfile.TemporaryDirectory(prefix="tritonhook-overhead-", dir=memory_folder()) as scratch:
        os.environ["TRITON_HOME"] = scratch
        samples = measure(new_folders(Path(scratch)), arguments.rounds)
    return {
        "environment": environment("triton", "tritonhook") | {"load_before_and_after": [*load, os.getloadavg()[0]]},
        "samples": samples,
        "summary": summarise(samples),
    }


def measure(folders: Iterator[Path], rounds: int) -> dict[str, list[float]]:
    import tritonhook

    renaming = partial(tritonhook.session, rename="cutlass_")
    by_policy = partial(tritonhook.session, policy=policy_of_the_kernels(folders))
    samples = dict(zip(("miss_renamed_s", "miss_policy_s"), misses(folders, rounds, renaming, by_policy), strict=True))
    samples["hit_renamed_s"], samples["hit_policy_s"] = hits(
        folders, 3 * rounds, renaming, by_policy, clock=processor_seconds
    )
    names = ("launch_plain_s", "launch_renamed_s", "launch_policy_s")
    samples |= dict(
        zip(names, launches(folders, rounds, nothing, renaming, by_policy, clock=processor_seconds), strict=True)
    )
    samples["lookup_s"], samples["rename_s"] = lookups(rounds)
    return samples


def policy_of_the_kernels(folders: Iterator[Path]) -> Path:
    """A policy that renames the kernels that are compiled and launched here."""
    from fake_driver import active
    from policies import policy
    from triton_kernels import add_kernel, compile_gemm, fresh

    import tritonhook

    os.environ["TRITON_CACHE_DIR"] = str(next(folders))
    tensor, folder = stand_in(), next(folders)
    with active(), tritonhook.session(folder) as session:
        compile_gemm()
        fresh(add_kernel)[(1,)](tensor, tensor, tensor, 1000, BLOCK=128)
    return policy(folder / "tritonhook.toml", session.captures, "name")


def misses(folders: Iterator[Path], rounds: int, *tools: Side) -> list[list[float]]:
    """Seconds per triton.compile with an empty Triton cache, per tool."""
    from triton_kernels import compile_gemm

    def sample(tool: Side) -> float:
        os.environ["TRITON_CACHE_DIR"] = str(next(folders))
        with tool(next(folders)):
            return processor_seconds(compile_gemm)

    return interleave(rounds, *(lambda tool=tool: sample(tool) for tool in tools))


def lookups(rounds: int) -> list[list[float]]:
    """Seconds to find a policy's entry for a PTX of 320 KB, and to read it and rename its entry."""
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptx.normal_form import normal_sha256
    from tritonhook.rename import Rename

    text, rename = large_ptx(), Rename(prefix="cutlass_")
    return interleave(
        rounds,
        lambda: processor_seconds(lambda: normal_sha256(text, "gemm_kernel")),
        lambda: processor_seconds(lambda: rename.apply(Ptx(text))),
    )


def summarise(samples: dict[str, list[float]]) -> dict[str, float]:
    def added(name: str, other: str) -> float:
        return median_difference(samples[name], samples[other])

    return {
        "miss_renamed_ms": 1e3 * median(samples["miss_renamed_s"]),
        "miss_policy_beside_rename_ms": 1e3 * added("miss_policy_s", "miss_renamed_s"),
        "hit_renamed_ms": 1e3 * median(samples["hit_renamed_s"]),
        "hit_policy_beside_rename_ms": 1e3 * added("hit_policy_s", "hit_renamed_s"),
        "launch_renamed_added_us": 1e6 * added("launch_renamed_s", "launch_plain_s"),
        "launch_policy_added_us": 1e6 * added("launch_policy_s", "launch_plain_s"),
        "lookup_ms": 1e3 * median(samples["lookup_s"]),
        "rename_ms": 1e3 * median(samples["rename_s"]),
    }
