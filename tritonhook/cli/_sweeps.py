"""Options and progress of the verbs that assemble many kernels: lab probe, lab caps."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from tritonhook._util.versions import version_key
from tritonhook.cli._parser import Group, flag, option, positive, seconds
from tritonhook.cli._progress import is_quiet, working
from tritonhook.cli._streams import unescaped
from tritonhook.ptxas.pool import Job, Limits, ResultCache, Run, dask_executor, sweep
from tritonhook.ptxas.result_cache import Outcome
from tritonhook.ptxas.tool import Tool, available_ptxas, find_ptxas

Advance = Callable[[Job, Outcome, bool], None]
Expect = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Sweep(Group):
    """Where ptxas runs, and how long."""

    jobs: int | None = option(type=positive, metavar="N", help="ptxas runs at the same time (default: processors + 10)")
    dask: str | None = option(metavar="ADDRESS", help="run on the workers of this Dask scheduler, e.g. tcp://host:8786")
    time_limit: float = option(type=seconds, default=Limits().seconds, metavar="S", help="seconds for one ptxas run")
    no_cache: bool = flag(help="do not use the cache of results")

    def cache(self) -> ResultCache | None:
        return None if self.no_cache else ResultCache()


def wanted_tools(words: Sequence[str]) -> list[Tool]:
    """Find one ptxas for each version or path. ["all"]: every installed ptxas; []: the newest."""
    if not words:
        return [find_ptxas()]
    if tuple(words) != ("all",):
        return list({tool.version: tool for tool in map(find_ptxas, words)}.values())
    tools = {tool.version: tool for tool in reversed(list(available_ptxas()))}  # the first of equal versions wins
    return sorted(tools.values(), key=lambda tool: version_key(tool.version))


@contextlib.contextmanager
def running(options: Sweep, cache: ResultCache | None) -> Iterator[tuple[Run, Expect]]:
    """Yield two functions: one runs ptxas jobs, the other announces how many more will come. On a terminal there is a
    progress bar."""
    limits = Limits(seconds=options.time_limit)
    with _executor(options) as (executor, in_flight), _progress() as (advance, expect):

        def go(jobs: Iterable[Job]) -> Iterator[tuple[Job, Outcome]]:
            return sweep(jobs, executor, cache, advance, limits, in_flight)

        yield go, expect


@contextlib.contextmanager
def _executor(options: Sweep) -> Iterator[tuple[Executor | int | None, int | None]]:
    if options.dask:
        with dask_executor(options.dask) as (executor, in_flight):
            yield executor, in_flight
    else:
        yield options.jobs, None


@contextlib.contextmanager
def _progress() -> Iterator[tuple[Advance, Expect]]:
    """Show a bar on a terminal: rate, time left, and how many results were cached. Elsewhere print a line."""
    if not sys.stderr.isatty() or is_quiet():
        with working("assembling with ptxas") as done:
            yield (lambda job, outcome, cached: done(1)), (lambda more: None)
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "-/s")

    columns = (BarColumn(), MofNCompleteColumn(), Rate(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(file=unescaped(sys.stderr)), transient=True) as bar:
        task = bar.add_task("", total=None)
        cached_so_far = 0

        def advance(job: Job, outcome: Outcome, cached: bool) -> None:
            nonlocal cached_so_far
            cached_so_far += cached
            bar.update(task, advance=1, description=f"{cached_so_far:,} known before" if cached_so_far else "")

        def expect(more: int) -> None:
            bar.update(task, total=(bar.tasks[0].total or 0) + more)

        yield advance, expect
