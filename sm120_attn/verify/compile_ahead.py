"""Compile the kernels of many cases before they are needed, in several processes."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import sys
from collections.abc import Iterable

from ..compile import cache
from ..compile.build import KernelConfig
from ..config import Config
from .cases import Case

JOBS = min(os.cpu_count() or 1, 16)  # number of processes that compile; each needs about 1 GB of memory


def needed(all_cases: Iterable[Case], arch: str, sms: int) -> list[Config]:
    """List the kernels that these cases run, without duplicates."""
    found: dict[Config, None] = {}
    for case in all_cases:
        rows, keys = case.longest
        if rows and keys and (case.lengths or case.batch):
            found[case.config(arch, sms)] = None
    return list(found)


def compile_ahead(configs: Iterable[KernelConfig], jobs: int) -> dict[str, str]:
    """Compile kernels into the cache on disk, with `jobs` processes. Returns the errors, by the kernel's name."""
    failed = {}
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(cache.prebuild, config): config for config in configs}
        for future in concurrent.futures.as_completed(waiting):
            try:
                future.result()
            except Exception as error:  # the DSL's exceptions have no common base class
                failed[waiting[future].name] = f"{type(error).__name__}: {error}"[:300]
    return failed


def compile_missing(configs: Iterable[KernelConfig], jobs: int) -> None:
    """Compile the kernels that are missing from the cache on disk, if there are more than four and the cache is on."""
    missing = [c for c in configs if not cache.is_cached(c)]
    if len(missing) > 4 and cache.cache_folder() is not None:
        print(f"compiling {len(missing)} kernels with {jobs} processes ...", file=sys.stderr)
        compile_ahead(missing, jobs)
