"""Options and progress of the verbs that assemble many kernels: lab probe, lab caps, check, bisect."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.cli._parser import Group, flag, option, positive, seconds
from tritonhook.cli._progress import working
from tritonhook.ptxas.pool import Job, Limits, ResultCache, Run, dask_executor, sweep
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.ptxas.tool import Tool, available_ptxas, find_ptxas

Expect = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Sweep(Group):
    """Options of many ptxas runs: where they run, and their time limit."""

    jobs: int | None = option(type=positive, metavar="N", help="ptxas processes at a time (default: processors + 10)")
    dask: str | None = option(metavar="ADDRESS", help="run on the workers of this Dask scheduler, e.g. tcp://host:8786")
    time_limit: float = option(
        type=seconds, default=Limits().seconds, metavar="S", help="stop a ptxas run after S seconds"
    )
    no_cache: bool = flag(help="do not use the cache of results")

    def cache(self) -> ResultCache | None:
        return None if self.no_cache else ResultCache()


def wanted_tools(words: Sequence[str]) -> list[Tool]:
    """Find one ptxas for each version or path. ["all"]: every installed ptxas; []: the newest."""
    if not words:
        return [find_ptxas()]
    if tuple(words) != ("all",):
        return list({tool.version: tool for tool in map(find_ptxas, words)}.values())
    tools = {tool.version: tool for tool in reversed(list(available_ptxas()))}  # keep the first of equals
    return sorted(tools.values(), key=lambda tool: version_key(tool.version))


@contextlib.contextmanager
def running(options: Sweep, cache: ResultCache | None = None) -> Iterator[tuple[Run, Expect]]:
    """Yield two functions: one runs ptxas jobs, the other announces how many more jobs will come."""
    limits, cache = Limits(seconds=options.time_limit), cache or options.cache()
    where = dask_executor(options.dask) if options.dask else contextlib.nullcontext((options.jobs, None))
    with where as (executor, in_flight), working("assembling with ptxas", 0) as work:

        def go(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
            return sweep(jobs, executor, cache, lambda job, outcome, cached: work(1), limits, in_flight)

        yield go, work.expect
