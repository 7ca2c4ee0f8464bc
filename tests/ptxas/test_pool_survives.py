"""A sweep that is killed, and one on a Dask cluster, end with the same table as an undisturbed one."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from repository import ROOT, SUPPORT

from tritonhook.lab.published_table import condition
from tritonhook.ptxas.pool import Job, Outcome, OutcomeKind, ResultCache, assemble_job, dask_executor, sweep
from tritonhook.ptxas.tool import Tool
from tritonhook.ptxas.toolchain import Toolchain

CRASHING = condition("bare").ptx("cutlass_k").text  # ptxas 12.8.93 crashes on it
BAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nno_such_opcode.b32 %r1;\nret;\n}\n"


def jobs(ptxas: Tool, count: int) -> list[Job]:
    return [Job(condition("none").ptx(f"k{i:04}").text, ptxas) for i in range(count)] + [
        Job(CRASHING, ptxas),
        Job(BAD, ptxas),
    ]


def table(results: list[tuple[Job, Outcome]]) -> dict[str, Outcome]:
    return {job.key: replace(outcome, cpu_s=0, wall_s=0, cubin=None) for job, outcome in results}


SWEEP = """
import sys
sys.path[:0] = {paths!r}
from pathlib import Path
from tests.ptxas.test_pool_survives import jobs
from tritonhook.ptxas.pool import ResultCache, sweep
from tritonhook.ptxas.tool import Tool
for _ in sweep(jobs(Tool(Path({path!r}), "12.8.93", "test"), {count}), 3, ResultCache({cache!r})):
    print("done", flush=True)
"""


def test_killed_again_and_again(tools: Toolchain, tmp_path: Path) -> None:
    # Given a sweep that is killed with all its processes, each time a bit later
    count, kills, seen = 100, 10 if "NIGHTLY" in os.environ else 4, []
    dice = random.Random(1)
    code = SWEEP.format(
        paths=[str(ROOT), str(SUPPORT)], path=str(tools.ptxas.path), count=count, cache=str(tmp_path / "cache")
    )
    for _ in range(kills):
        child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout is not None and child.stdout.readline() == b"done\n"
        time.sleep(dice.uniform(0, 0.05))
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        seen.append(stored(tmp_path / "cache"))
    assert seen == sorted(seen) and 0 < seen[0] < count  # finished outcomes were kept
    # When it runs to its end
    cached = []
    cache = ResultCache(tmp_path / "cache")
    finished = list(
        sweep(jobs(tools.ptxas, count), 3, cache, lambda job, outcome, was_cached: cached.append(was_cached))
    )
    undisturbed = list(sweep(jobs(tools.ptxas, count)))
    # Then the kept outcomes are used, and the table is that of an undisturbed sweep
    assert sum(cached) == seen[-1]
    assert table(finished) == table(undisturbed)
    assert {outcome.kind for _, outcome in finished} == {
        OutcomeKind.ASSEMBLED,
        OutcomeKind.CRASHED,
        OutcomeKind.REJECTED,
    }


def stored(folder: Path) -> int:
    cache = ResultCache(folder)
    keys = {
        line.split()[0].decode() for path in folder.glob("*.lines") for line in path.read_bytes().split(b"\n") if line
    }
    return sum(cache.get(key) is not None for key in keys)


def test_dask(tools: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a Dask cluster of two worker processes
    distributed = pytest.importorskip("distributed", reason="needs Dask: pip install distributed")
    monkeypatch.setattr("tritonhook.ptxas.pool.DASK_TIMEOUT_S", 120.0)
    wanted = jobs(tools.ptxas, 20)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, local_directory=str(tmp_path)
        ) as cluster,
        dask_executor(cluster.scheduler_address) as (executor, in_flight),
    ):
        assert in_flight == 6
        cache = ResultCache(tmp_path / "cache")
        found = list(sweep([*wanted, Job(wanted[0].ptx, tools.ptxas, keep_cubin=True)], executor, cache))
    # Then the table is the same as without it, and the cache has all outcomes
    here = {job.key: outcome for job, outcome in ((job, assemble_job(job)) for job in wanted)}
    assert table(found) == table([(job, here[job.key]) for job in wanted])
    assert any(outcome.cubin for job, outcome in found if job.keep_cubin)
    assert all(ResultCache(tmp_path / "cache").get(job.key) is not None for job in wanted)


def test_no_scheduler_is_one_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("distributed", reason="needs Dask: pip install distributed")
    from tritonhook.cli import main

    monkeypatch.setattr("tritonhook.ptxas.pool.DASK_TIMEOUT_S", 0.5)
    (tmp_path / "k.ptx").write_text(condition("fma").ptx("k").text)
    assert main(["lab", "probe", str(tmp_path / "k.ptx"), "--dask", "tcp://127.0.0.1:9"]) == 2
    message = capsys.readouterr().err
    assert "tcp://127.0.0.1:9: no Dask scheduler answers there" in message
    assert len(message.splitlines()) == 1
