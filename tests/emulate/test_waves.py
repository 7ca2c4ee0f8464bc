"""CTAs in waves: the bits of one wave, waits between CTAs, and memory that does not grow with a launch."""

from __future__ import annotations

import resource
import subprocess
import sys
import textwrap
from dataclasses import replace

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of, run_body  # noqa: E402
from repository import SUPPORT  # noqa: E402

from tritonhook.capture.launches.record import Launch  # noqa: E402
from tritonhook.emulate import waves  # noqa: E402
from tritonhook.emulate.errors import Hang, Unfinished  # noqa: E402
from tritonhook.emulate.launch import clusters, edges  # noqa: E402
from tritonhook.emulate.machine import Machine  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx  # noqa: E402
from tritonhook.emulate.sanitizer.run import sanitize  # noqa: E402

AT = "mad.wide.u32 %rd1, %r20, 4, %rd20; cvt.u64.u32 %rd3, %r28;\n"
ROOM = ".shared .align 16 .b8 room[256];"
# Each thread gets the number of a lane of its CTA's other warp, and what its cluster's other CTA has put there.
EXCHANGE = f"""{AT}mov.u32 %r1, room; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
st.shared.b32 [%r4], %r20; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r5, %r4, 128; mov.u32 %r6, %cluster_ctarank; xor.b32 %r6, %r6, 1; mapa.shared::cluster.u32 %r7, %r5, %r6;
ld.shared::cluster.b32 %r8, [%r7]; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
st.global.b32 [%rd1], %r8; red.global.add.u32 [%rd21], %r8;"""
# The first CTA waits until the others have counted themselves.
WAITS = f"""{AT}setp.ne.u32 %p1, %r28, 0; @%p1 bra COUNT;
W: ld.volatile.global.u32 %r1, [%rd21]; setp.lt.u32 %p2, %r1, {{others}}; @%p2 bra W;
bra END; COUNT: red.global.add.u32 [%rd21], 1; END: st.global.b32 [%rd1], %r1;"""

# All wait for all: a barrier of the grid.
MEET = f"""{AT}red.global.add.u32 [%rd21], 1;
W: ld.volatile.global.u32 %r1, [%rd21]; setp.lt.u32 %p2, %r1, {{others}}; @%p2 bra W; st.global.b32 [%rd1], %r1;"""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    """Waves of so many CTAs of 64 threads, and so many of them at once."""

    real = waves.Waves.__init__

    def set_(ctas: int, together: int = 2) -> None:
        def begun(self, loaded, run, watcher=None):
            monkeypatch.setattr(waves, "WAVE_BYTES", loaded.cta_bytes * ctas)
            monkeypatch.setattr(waves, "RESIDENT_BYTES", loaded.cta_bytes * ctas * together)
            real(self, loaded, run, watcher)

        monkeypatch.setattr(waves.Waves, "__init__", begun)

    return set_


def test_waves_store_what_one_wave_stores(small):
    out, total = np.zeros(64 * 12, np.uint32), np.zeros(1, np.uint32)

    def ran():
        return run_body(EXCHANGE, out, total, threads=64, grid=12, cluster=(2, 1, 1), declarations=ROOM)

    whole = ran()
    other = np.arange(64 * 12) ^ 64 ^ 32
    assert np.array_equal(whole[0], other) and whole[1][0] == other.sum()
    for ctas in (2, 4, 5):
        small(ctas)
        assert all(map(np.array_equal, ran(), whole))


def test_a_kernel_that_is_launched_again_finds_nothing_of_the_earlier_launch(monkeypatch):
    """Neither in registers and shared memory nor in barriers: it is decoded once, and its threads begin anew."""
    body = f"""{AT}mov.u32 %r1, room; mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; add.u32 %r4, %r1, %r3;
ld.shared.b32 %r5, [%r4]; add.u32 %r6, %r6, %r5; ld.global.b32 %r7, [%rd1]; add.u32 %r6, %r6, %r7;
st.shared.b32 [%r4], %r6; setp.lt.u32 %p1, %r2, 32; @%p1 bra LOW; bar.arrive 1, 64; bra END;
LOW: bar.sync 1, 64; END: bar.sync 0; xor.b32 %r4, %r4, 128; ld.shared.b32 %r8, [%r4];
st.global.b32 [%rd1], %r8; exit;"""
    kernel = read_kernel(module_of(body, 1, declarations=ROOM))
    given = [np.arange(begin, begin + 64 * 3, dtype=np.uint32) for begin in (0, 1000)]
    launch, decoded = launch_of(given[0], threads=64, grid=3), []
    monkeypatch.setattr(waves, "_decoded", {})
    monkeypatch.setattr(waves, "Machine", lambda *args: decoded.append(1) or Machine(*args))
    for one in given * 2:
        (after,) = run_ptx(kernel, Run(launch, range(3)), [one.tobytes()]).contents
        assert np.array_equal(np.frombuffer(after, np.uint32), one[np.arange(64 * 3) ^ 32])
    assert len(decoded) == 1


def test_a_race_is_found_once_though_each_wave_has_it(small):
    body = f"{AT}mov.u32 %r1, room; mov.u32 %r2, %tid.x; st.shared.b32 [%r1], %r2; st.global.b32 [%rd1], %r2;"
    out = np.zeros(64 * 9, np.uint32)
    run = Run(launch_of(out, threads=64, grid=9), range(9))
    alone = sanitize(module_of(body, 1, declarations=ROOM), run, [out.tobytes()])
    small(2)
    several = sanitize(module_of(body, 1, declarations=ROOM), run, [out.tobytes()])
    assert [one.kind for one in alone.findings] == ["race"]
    assert several.findings == alone.findings and several.ran.contents == alone.ran.contents


def test_a_fault_names_the_cta_of_its_wave(small):
    body = f"{AT}setp.eq.u32 %p1, %r28, 7; @%p1 st.global.b32 [%rd1+4096], %r1;"
    out = np.zeros(64 * 9, np.uint32)
    small(2)
    got = sanitize(module_of(body, 1), Run(launch_of(out, threads=64, grid=9), range(9)), [out.tobytes()])
    assert got.findings[0].places[0].what == "thread 0 of CTA 7"


@pytest.mark.parametrize(("ctas", "together", "grid"), [(2, 2, 4), (3, 3, 9), (1, 5, 5)])
def test_ctas_that_wait_for_later_ones_take_turns_with_them(small, ctas, together, grid):
    out, count = np.zeros(64 * grid, np.uint32), np.zeros(1, np.uint32)
    small(ctas, together)
    body = WAITS.format(others=64 * (grid - 1))
    assert run_body(body, out, count, threads=64, grid=grid, most_steps=100_000)[1][0] == 64 * (grid - 1)


def test_a_barrier_of_more_ctas_than_fit_is_no_hang_of_the_kernel(small, monkeypatch):
    out, count = np.zeros(64 * 6, np.uint32), np.zeros(1, np.uint32)
    monkeypatch.setattr(waves, "_ROUNDS", 20)
    body = MEET.format(others=64 * 6)
    small(2, 3)
    assert set(run_body(body, out, count, threads=64, grid=6)[0].tolist()) == {64 * 6}
    small(2, 2)
    with pytest.raises(Unfinished, match="0 of 6 CTAs finished; 4 are resident"):
        run_body(body, out, count, threads=64, grid=6)
    monkeypatch.setattr(waves, "_ROUNDS", 1 << 40)
    run = Run(launch_of(out, count, threads=64, grid=6), range(6), most_steps=10_000)
    got = sanitize(module_of(body, 2), run, [out.tobytes(), count.tobytes()])
    assert got.findings == () and isinstance(got.error, Unfinished)
    small(2, 3)
    with pytest.raises(Hang):  # all are here, and wait for more than there are
        run_body(MEET.format(others=64 * 6 + 1), out, count, threads=64, grid=6, most_steps=10_000)


def test_a_cooperative_launch_runs_whole_or_is_refused(small):
    out = np.zeros(64 * 6, np.uint32)
    launch = launch_of(out, threads=64, grid=6)
    launch = Launch(**{name: getattr(launch, name) for name in launch.__dataclass_fields__} | {"cooperative": True})
    kernel = module_of(f"{AT}st.global.b32 [%rd1], %r20;", 1)
    small(2, 3)
    assert run_ptx(kernel, Run(launch, range(6)), [out.tobytes()]).contents[0] == np.arange(384, dtype="u4").tobytes()
    small(2, 2)
    with pytest.raises(Unfinished, match="cooperative launch of 6 CTAs: 4 fit"):
        run_ptx(kernel, Run(launch, range(6)), [out.tobytes()])


@pytest.mark.parametrize(
    ("body", "room", "cooperative", "kinds"),
    [
        (MEET.format(others=64 * 6), 6, False, []),
        (MEET.format(others=64 * 6), 5, False, ["CTAs without room"]),
        (
            "mov.u32 %r1, 0;" + WAITS.format(others=64 * 5),
            2,
            False,
            [],
        ),  # one waits, and the others end one after the other
        ("mov.u32 %r1, 0;" + WAITS.format(others=64 * 5), 1, False, ["CTAs without room"]),
        (f"{AT}st.global.b32 [%rd1], %r20;", 6, True, []),
        (f"{AT}st.global.b32 [%rd1], %r20;", 5, True, ["CTAs without room"]),  # the driver refuses it
        (f"{AT}st.global.b32 [%rd1], %r20;", 5, False, []),
    ],
)
def test_ctas_that_wait_for_others_have_room_on_the_gpu(body, room, cooperative, kinds):
    out, count = np.zeros(64 * 6, np.uint32), np.zeros(1, np.uint32)
    launch = replace(launch_of(out, count, threads=64, grid=6), cooperative=cooperative)
    contents = [out.tobytes(), count.tobytes()]
    got = sanitize(module_of(body, 2), Run(launch, range(6)), contents, room=(room, f"it holds {room}"))
    assert [one.kind for one in got.findings] == kinds
    assert all(f"of 6 CTAs: it holds {room}" in one.text and one.places[0].line for one in got.findings)


def test_clusters_of_all_ctas_and_of_some():
    launch = Launch("k", (4, 4, 1), (32, 1, 1), (), cluster=(2, 2, 1))
    whole = list(clusters(launch, edges(launch, 16)))
    assert whole == [(0, 1, 4, 5), (2, 3, 6, 7), (8, 9, 12, 13), (10, 11, 14, 15)]
    assert list(clusters(launch, (15, 0, 5))) == [whole[3], whole[0]]


LAUNCHES = {  # grid, cluster, threads, body, declarations: none may take 2 GiB
    "32,768 warps that meet and share": (8192, 1, 128, "st.shared.b32 [room], %r20; bar.sync 0;", ROOM),
    "more CTAs than can finish": (2**31 - 1, 1, 32, "", ""),
    "a cluster that reads all its shared memory by bytes": (
        16, 16, 1024,
        "mov.u32 %r1, 1024; W: add.u32 %r2, %r1, %r20; ld.shared.b8 %rs1, [%r2]; add.u32 %r1, %r1, 1024;\n"
        "setp.lt.u32 %p1, %r1, 229376; @%p1 bra W;", ".shared .align 16 .b8 much[231424];",
    ),
    "local memory": (64, 1, 1024, ".local .b8 mine[500000]; st.local.b32 [mine], %r20;", ""),
    "an mbarrier at each place": (
        1, 1, 32,
        "mov.u32 %r1, 1024; W: mbarrier.init.shared.b64 [%r1], 1; mbarrier.arrive.shared.b64 %rd1, [%r1];\n"
        "add.u32 %r1, %r1, 8; setp.lt.u32 %p1, %r1, 60000; @%p1 bra W;", ".shared .align 16 .b8 much[60000];",
    ),
}  # fmt: skip
CHILD = """
import gc, sys; gc.disable(); sys.path.insert(0, {support!r})
import numpy as np
from emulated import launch_of, module_of
from tritonhook.emulate.errors import Unfinished
from tritonhook.emulate.launch import edges
from tritonhook.emulate.run import Run
from tritonhook.emulate.sanitizer.run import sanitize
grid, cluster, threads, body, declarations = {launch!r}
launch = launch_of(np.zeros(1, np.uint32), threads=threads, grid=grid, cluster=(cluster, 1, 1))
run = Run(launch, edges(launch, grid), limit_s=5)
try:
    print(type(sanitize(module_of(body, 1, declarations=declarations), run, [bytes(4)]).error).__name__)
except Unfinished as error:
    print("refused:", error)
"""


@pytest.mark.parametrize("name", LAUNCHES)
def test_no_launch_takes_more_than_2_gib(name):
    """The peak is measured in a process of its own, which may not take more than 4 GiB of addresses either."""
    code = textwrap.dedent(CHILD).format(support=str(SUPPORT), launch=LAUNCHES[name])
    code += "\nimport resource; print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10)"

    def bounded() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=bounded, timeout=600)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < 2048, done.stdout
