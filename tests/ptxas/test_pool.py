"""Sweeps on threads, processes and a broken pool: kinds of outcomes; nothing runs twice, nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from shell_ptxas import shell_ptxas

from tritonhook.errors import ToolError
from tritonhook.lab.published_table import condition
from tritonhook.ptxas.pool import (
    Job,
    Limits,
    Outcome,
    OutcomeKind,
    ResultCache,
    assemble_job,
    sweep,
)
from tritonhook.ptxas.tool import Tool, binary_sha256
from tritonhook.ptxas.toolchain import Toolchain

FMA = condition("fma").ptx("cutlass_k").text
BAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\nno_such_opcode.b32 %r1;\nret;\n}\n"


@pytest.fixture
def ptxas(tools: Toolchain) -> Tool:
    return tools.ptxas


@pytest.fixture
def fake(tmp_path: Path, ptxas: Tool) -> Callable[..., Tool]:
    return lambda body, name="ptxas": shell_ptxas(tmp_path, ptxas, body, name)


def run(job: Job, **limits: float) -> Outcome:
    return assemble_job(job, Limits(**limits))


def finding(outcome: Outcome) -> tuple[object, ...]:
    """What is equal in every run."""
    return outcome.kind, outcome.message, outcome.returncode, outcome.signal, outcome.image


# --- kinds ---------------------------------------------------------------------------------------


def test_assembled(ptxas: Tool) -> None:
    outcome = run(Job(FMA, ptxas, keep_cubin=True))
    assert (outcome.kind, outcome.message, outcome.returncode) == (OutcomeKind.ASSEMBLED, "", 0)
    (kernel,) = outcome.image.kernels
    assert kernel.kernel == "cutlass_k" and kernel.registers > 8 and kernel.spill_stores == 0
    assert kernel.scheduler_records > 0
    assert len(outcome.cubin) == outcome.image.file_bytes
    assert 0 < outcome.cpu_s < 10


def test_rejected_and_unsupported_are_told_apart(ptxas: Tool) -> None:
    rejected = run(Job(BAD, ptxas))
    assert rejected.kind is OutcomeKind.REJECTED
    assert rejected.message.startswith("line 6: Not a name of any known instruction")
    newer = run(Job(FMA.replace(".version 8.7", ".version 9.9"), ptxas))
    assert (newer.kind, "Unsupported .version 9.9" in newer.message) == (OutcomeKind.UNSUPPORTED, True)
    unknown = run(Job(FMA.replace("sm_100a", "sm_190a"), ptxas))
    assert unknown.kind is OutcomeKind.UNSUPPORTED, unknown.message
    known = run(Job(FMA, ptxas, ("--gpu-name=sm_90a",)))
    assert known.kind is OutcomeKind.UNSUPPORTED, known.message


def test_a_crash_is_an_outcome(fake: Callable[..., Tool]) -> None:
    outcome = run(Job(FMA, fake("kill -SEGV $$")))
    assert (outcome.kind, outcome.signal, outcome.lasting) == (OutcomeKind.CRASHED, "SIGSEGV", True)


def test_a_hang_is_an_outcome(fake: Callable[..., Tool]) -> None:
    outcome = run(Job(FMA, fake("exec sleep 600")), seconds=0.2)
    assert (outcome.kind, outcome.lasting) == (OutcomeKind.TIMEOUT, True)
    assert outcome.wall_s < 600, "it came to its own end"


def test_a_memory_hog_is_an_outcome(ptxas: Tool) -> None:
    # Given the real ptxas with less memory than it needs
    chain = "".join(f" fma.rn.f32 %f{i % 200}, %f{i * 7 % 200}, %f{i * 3 % 200}, %f1;\n" for i in range(20000))
    outcome = run(Job(FMA.replace(" ret;", chain + " ret;"), ptxas), memory_bytes=64 << 20)
    assert outcome.kind is OutcomeKind.MEMORY, (outcome.message, outcome.signal)


def test_killed_from_outside_is_not_kept(fake: Callable[..., Tool], tmp_path: Path) -> None:
    tool, cache = fake("kill -TERM $$"), ResultCache(tmp_path / "cache")
    with ThreadPoolExecutor(1) as executor:
        ((_, outcome),) = sweep([Job(FMA, tool)], executor, cache)
    assert not outcome.lasting
    assert ResultCache(tmp_path / "cache").get(Job(FMA, tool).key) is None


def test_a_tool_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(ToolError, match="nowhere"):
        list(sweep([Job(FMA, Tool(tmp_path / "nowhere", "1.2.3", "test"))], executor))


def test_what_is_no_cubin_is_an_error(fake: Callable[..., Tool]) -> None:
    tool = fake('for out in "$@"; do :; done; echo hello > "$out"; exit 0')
    with pytest.raises(ToolError, match="the output of this ptxas .* is not a cubin"):
        run(Job(FMA, tool))


def test_key_is_of_content(ptxas: Tool, tmp_path: Path, fake: Callable[..., Tool]) -> None:
    job = Job(FMA, ptxas)
    copy = tmp_path / "copy"
    copy.write_bytes(ptxas.path.read_bytes())
    assert Job(FMA, Tool(copy, "0.0.0", "x")).key == job.key == Job(FMA, ptxas, keep_cubin=True).key
    others = [Job(FMA + " ", ptxas), Job(FMA, ptxas, ("-O1",)), Job(FMA, ptxas, draw=1), Job(FMA, fake("true"))]
    assert len({job.key, *(other.key for other in others)}) == 5


# --- sweeps --------------------------------------------------------------------------------------


def names(count: int) -> list[str]:
    return [condition("none").ptx(f"k{i:03}").text for i in range(count)]


@pytest.mark.parametrize(
    "make", [lambda: ThreadPoolExecutor(2), lambda: ProcessPoolExecutor(2), nullcontext, lambda: nullcontext(1)]
)
def test_every_executor_gives_the_same(
    ptxas: Tool, make: Callable[[], AbstractContextManager[Executor | int | None]]
) -> None:
    jobs = [Job(text, ptxas) for text in [*names(6), BAD]]
    with make() as executor:
        found = {job: finding(outcome) for job, outcome in sweep(jobs, executor)}
    assert found == {job: finding(assemble_job(job)) for job in jobs}


@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(2), nullcontext])
def test_nothing_is_assembled_twice(
    fake: Callable[..., Tool], tmp_path: Path, make: Callable[[], AbstractContextManager[Executor | None]]
) -> None:
    log = tmp_path / "log"
    tool = fake(f"echo run >> {log}")
    jobs = [Job(text, tool) for text in names(3)] * 4
    for cache in (None, ResultCache(tmp_path / "cache"), ResultCache(tmp_path / "cache")):
        with make() as executor:
            assert len(list(sweep(jobs, executor, cache))) == 12
    assert len(log.read_text().split()) == 3 + 3  # the third sweep found everything in the cache of the second


def test_a_kept_cubin_is_asked_for_later(fake: Callable[..., Tool], tmp_path: Path) -> None:
    tool, cache = fake("true"), ResultCache(tmp_path / "cache")
    wanted = Job(FMA, tool, keep_cubin=True)
    with ThreadPoolExecutor(2) as executor:
        list(sweep([Job(FMA, tool)], executor, cache))
        ((_, outcome),) = sweep([wanted], executor, cache)
    assert outcome.cubin[:4] == b"\x7fELF"
    assert ResultCache(tmp_path / "cache").get(wanted.key, with_cubin=True).cubin == outcome.cubin


def test_a_longer_limit_asks_again(fake: Callable[..., Tool], tmp_path: Path) -> None:
    # Given a ptxas that hangs for now
    slow = tmp_path / "slow"
    tool, cache = fake(f"[ -e {slow} ] && exec sleep 600"), ResultCache(tmp_path / "cache")
    slow.touch()
    with ThreadPoolExecutor(1) as executor:

        def kind(seconds: float) -> OutcomeKind:
            return next(sweep([Job(FMA, tool)], executor, cache, limits=Limits(seconds=seconds)))[1].kind

        assert kind(0.1) is OutcomeKind.TIMEOUT
        slow.unlink()
        assert kind(0.1) is OutcomeKind.TIMEOUT, "from the cache"
        assert kind(120) is OutcomeKind.ASSEMBLED


@pytest.mark.parametrize(
    ("body", "kind", "runs"),
    [
        ("true", OutcomeKind.ASSEMBLED, 1),
        ("kill -SEGV $$", OutcomeKind.CRASHED, 1),
        ('echo "ptxas fatal : Memory allocation failure" >&2; exit 255', OutcomeKind.MEMORY, 2),
    ],
)
def test_wider_limits_ask_again_only_what_they_can_change(
    fake: Callable[..., Tool], tmp_path: Path, body: str, kind: OutcomeKind, runs: int
) -> None:
    log = tmp_path / "log"
    job = Job(FMA, fake(f"echo run >> {log}; {body}"))
    for limits in (Limits(60, 4 << 30), Limits(120, 8 << 30), Limits(60, 4 << 30)):
        ((_, outcome),) = sweep([job], 1, ResultCache(tmp_path / "cache"), limits=limits)
        assert outcome.kind is kind
    assert len(log.read_text().split()) == runs


def _die(*_: object) -> None:
    os._exit(1)


def test_a_worker_that_dies_loses_nothing(ptxas: Tool) -> None:
    # Given a pool one of whose workers dies in the middle
    jobs = [Job(text, ptxas) for text in names(12)]
    with ProcessPoolExecutor(2) as executor:
        results = sweep(jobs, executor, in_flight=4)
        found = dict([next(results)])
        executor.submit(_die)
        with pytest.warns(UserWarning, match="continues in this process"):
            found |= dict(results)
    assert found.keys() == set(jobs)
    assert {outcome.kind for outcome in found.values()} == {OutcomeKind.ASSEMBLED}


def test_an_interrupt_cancels_what_waits_and_keeps_what_is_done(ptxas: Tool, tmp_path: Path) -> None:
    jobs = [Job(text, ptxas) for text in names(40)]
    futures: list[Future[Outcome]] = []

    class Recording(ThreadPoolExecutor):
        def submit(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            futures.append(super().submit(*args, **kwargs))
            return futures[-1]

    def interrupt(job: Job, outcome: Outcome, cached: bool) -> None:
        if job == jobs[2]:
            raise KeyboardInterrupt

    with Recording(1) as executor, pytest.raises(KeyboardInterrupt):
        for _ in sweep(jobs, executor, ResultCache(tmp_path / "cache"), interrupt, in_flight=10):
            pass
    again = ResultCache(tmp_path / "cache")
    assert all(again.get(job.key) is not None for job in jobs[:3])
    assert any(future.cancelled() for future in futures)
    assert len(futures) < 20


def test_files_under_any_number_of_ours(ptxas: Tool) -> None:
    """The files of the program have fixed descriptors; they must not collide with those that are open here."""
    job = Job(FMA, ptxas, ("-v",))
    expected = finding(run(job))
    opened: list[int] = []
    try:
        while not opened or opened[-1] <= 105:  # so that input, output and log get all numbers near 103 and 104
            opened.append(os.open(os.devnull, os.O_RDONLY))
            if opened[-1] >= 98:
                assert finding(run(job)) == expected, f"with {opened[-1]} open"
    finally:
        for file in opened:
            os.close(file)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams(ptxas: Tool, closed: str, tmp_path: Path) -> None:
    program = (
        "import pathlib, sys; from tritonhook.ptxas.pool import Job, assemble_job\n"
        "from tritonhook.ptxas.tool import find_ptxas\n"
        f"job = Job(pathlib.Path('k.ptx').read_text(), find_ptxas({str(ptxas.path)!r}))\n"
        "pathlib.Path('kind').write_text(assemble_job(job).kind.value)"
    )
    (tmp_path / "k.ptx").write_text(FMA)

    subprocess.run(["sh", "-c", f'"$0" -c "$1" {closed}', sys.executable, program], cwd=tmp_path, check=True)

    assert (tmp_path / "kind").read_text() == "assembled"


def test_an_interrupt_leaves_nothing_running(fake: Callable[..., Tool], tmp_path: Path) -> None:
    # Given a ptxas that hangs under one name, and an interrupt while it does
    tool = fake(f'grep -q "entry k003" "$in" && echo $$ > {tmp_path}/pid && exec sleep 60')
    jobs = [Job(text, tool) for text in names(8)]

    def interrupt(job: Job, outcome: Outcome, cached: bool) -> None:
        if (tmp_path / "pid").exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(sweep(jobs, 2, ResultCache(tmp_path / "cache"), interrupt))
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert ResultCache(tmp_path / "cache").get(jobs[0].key) is not None


def test_a_hang_does_not_hold_up_the_others(fake: Callable[..., Tool], time_over: Callable[[], None]) -> None:
    # Given a ptxas that hangs under one name, and a time limit that is over when all others have ended
    tool = fake('grep -q "entry k000" "$in" && exec sleep 600')
    kinds: list[OutcomeKind] = []

    def keep(job: Job, outcome: Outcome, cached: bool) -> None:
        kinds.append(outcome.kind)
        if len(kinds) == 5:
            time_over()

    list(sweep([Job(text, tool) for text in names(6)], 2, on_outcome=keep))
    assert kinds == [OutcomeKind.ASSEMBLED] * 5 + [OutcomeKind.TIMEOUT]


def test_another_path_with_the_same_hash_will_do(tmp_path: Path, ptxas: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a job made on another machine, where ptxas lies elsewhere
    elsewhere = Job(FMA, Tool(tmp_path / "not here", ptxas.version, "added"))
    outcome = assemble_job(elsewhere, None, binary_sha256(ptxas.path))
    assert outcome.kind is OutcomeKind.ASSEMBLED
    # and an error if no ptxas here is that binary
    with pytest.raises(ToolError, match=r"no ptxas 12\.8\.93 with the hash 000"):
        assemble_job(elsewhere, None, "0" * 64)


# --- the cache -----------------------------------------------------------------------------------


def test_damaged_entries_are_done_again(fake: Callable[..., Tool], tmp_path: Path) -> None:
    log = tmp_path / "log"
    jobs = [Job(text, fake(f"echo run >> {log}")) for text in names(4)]

    def again() -> list[Outcome]:
        with ThreadPoolExecutor(1) as executor:
            return [outcome for _, outcome in sweep(jobs, executor, ResultCache(tmp_path / "cache"))]

    again()
    # Given a torn line, a changed byte, and a file of noise
    files = sorted((tmp_path / "cache").glob("*.lines"))
    whole = files[0].read_bytes()
    for damage in (whole[:-20], whole.replace(b"assembled", b"assembles", 1), os.urandom(999)):
        files[0].write_bytes(damage)
        before = len(log.read_text().split())
        assert {outcome.kind for outcome in again()} == {OutcomeKind.ASSEMBLED}
        assert len(log.read_text().split()) > before
    before = len(log.read_text().split())
    again()
    assert len(log.read_text().split()) == before  # entries behind the damage were found


def test_a_damaged_cubin_is_made_again(ptxas: Tool, tmp_path: Path) -> None:
    job = Job(FMA, ptxas, keep_cubin=True)
    cache = ResultCache(tmp_path / "cache")
    cache.put(job.key, assemble_job(job))
    (path,) = (tmp_path / "cache").rglob("*.cubin")
    path.write_bytes(b"\x7fELF")
    assert ResultCache(tmp_path / "cache").get(job.key, with_cubin=True).cubin is None


def test_several_processes_write_at_a_time(ptxas: Tool, tmp_path: Path) -> None:
    outcome = assemble_job(Job(FMA, ptxas))
    with ProcessPoolExecutor(4) as executor:
        list(executor.map(_put_many, [tmp_path] * 4, range(4), [outcome] * 4))
    cache = ResultCache(tmp_path)
    assert all(cache.get(_key(i, j)) == outcome for i in range(4) for j in range(100))


def _key(i: int, j: int) -> str:
    return f"{j % 4:02x}{i:030x}{j:032x}"


def _put_many(folder: Path, i: int, outcome: Outcome) -> None:
    cache = ResultCache(folder)
    for j in range(100):
        cache.put(_key(i, j), outcome)


def test_a_folder_that_cannot_be_written_is_an_error(ptxas: Tool, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ToolError, match="set TRITONHOOK_CACHE"):
        ResultCache(tmp_path / "file" / "cache").put("ab", assemble_job(Job(BAD, ptxas)))
