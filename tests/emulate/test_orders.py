"""One launch in several orders of CTAs, warps and atomics: which results depend on the order."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of  # noqa: E402

from tritonhook.emulate.orders import in_orders  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.run import Run, run_ptx, run_together  # noqa: E402

VALUE = "mad.wide.u32 %rd1, %r20, 4, %rd20; ld.global.b32 %r1, [%rd1];\n"
ROOM = ".shared .align 16 .b8 room[64];"
SHARED = f"""{VALUE}mov.u32 %r2, room; mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0; @!%p1 st.shared.b32 [%r2], 0;
bar.sync 0; mov.b32 %f1, %r1; red.shared.add.f32 [%r2], %f1;
bar.sync 0; mad.wide.u32 %rd2, %r28, 4, %rd21; ld.shared.b32 %r4, [%r2]; @!%p1 st.global.b32 [%rd2], %r4;"""
EXCHANGE = f"{VALUE}atom.global.exch.b32 %r2, [%rd21], %r1;"
# Each CTA stores its first value; the last one to count itself adds all of them, from the first to the last.
LAST = f"""{VALUE}mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0; @%p1 bra END;
mad.wide.u32 %rd2, %r28, 4, %rd21; st.global.b32 [%rd2], %r1; membar.gl;
atom.global.add.u32 %r4, [%rd22], 1; setp.ne.u32 %p2, %r4, 7; @%p2 bra END;
mov.b32 %r5, 0; mov.b32 %f1, 0f00000000; L: mad.wide.u32 %rd3, %r5, 4, %rd21; ld.global.f32 %f2, [%rd3];
add.f32 %f1, %f1, %f2; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 8; @%p3 bra L; st.global.f32 [%rd21], %f1;
END:"""
# A warp waits for the other one, and the first CTA for the others.
WAITS = f"""{VALUE}setp.eq.u32 %p1, %r28, 0; @!%p1 red.global.add.u32 [%rd22], 1; @!%p1 bra END;
W: ld.volatile.global.u32 %r4, [%rd22]; setp.lt.u32 %p2, %r4, 448; @%p2 bra W; bar.sync 0;
mad.wide.u32 %rd2, %r20, 4, %rd21; st.global.b32 [%rd2], %r4; END:"""


# One warp may read before the other one writes.
WARPS = """mov.u32 %r2, room; mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, 32; mad.wide.u32 %rd2, %r20, 4, %rd21;
@%p1 st.shared.b32 [%r2], 7;
ld.shared.b32 %r4, [%r2]; st.global.b32 [%rd2], %r4;"""

# The first and the last CTA store to one place; half of the CTAs end before the others begin.
BLOCKS = """mov.u32 %r3, %tid.x; setp.eq.u32 %p1, %r3, 0; setp.eq.u32 %p2, %r28, 0; setp.eq.u32 %p3, %r28, 7;
or.pred %p2, %p2, %p3; and.pred %p1, %p1, %p2; @%p1 st.global.b32 [%rd21], %r28;"""


@pytest.mark.parametrize(
    ("body", "writer"),
    [
        (f"{VALUE}mov.b32 %f1, %r1; red.global.add.f32 [%rd21], %f1;", "red.global.add.f32"),
        (EXCHANGE, "atom.global.exch.b32"),
        (f"{VALUE}st.global.b32 [%rd21], %r1;", "st.global.b32"),
        (WARPS, "st.global.b32"),
        (BLOCKS, "st.global.b32"),
        (SHARED, "red.shared.add.f32"),
        (
            f"{VALUE}atom.global.add.u32 %r2, [%rd22], 1; mad.wide.u32 %rd2, %r2, 4, %rd21; st.global.b32 [%rd2], %r1;",
            "atom.global.add.u32",
        ),
        (f"{VALUE}red.global.add.u32 [%rd21], %r1;", None),
        (f"{VALUE}red.global.max.s32 [%rd21], %r1;", None),
        (LAST, None),
        (WAITS, None),
    ],
    ids=[
        *("float sum", "exchange", "race", "warps", "blocks", "shared sum", "slots"),
        *("integers", "maximum", "last block", "waits"),
    ],
)
def test_what_depends_on_the_order(body, writer):
    x = np.random.default_rng(1).random(512, np.float32)
    buffers = x, np.zeros(512, np.float32), np.zeros(1, np.uint32)
    ptx = module_of(body, 3, declarations=ROOM)
    run, contents = Run(launch_of(*buffers, threads=64, grid=8), range(8)), [one.tobytes() for one in buffers]
    kernel = read_kernel(ptx)
    stored = run_ptx(kernel, run, contents).contents
    others = list(in_orders(ptx, kernel, run, contents, stored, 4))
    assert [one.seed for one in others] == [1, 2, 3]
    places = [place for one in others for place in one.differing.get(1, ())]
    assert bool(places) == (writer is not None)
    assert any(writer in place.instruction for place in places) or writer is None
    again = list(in_orders(ptx, kernel, run, contents, stored, 4))
    assert [one.contents for one in again] == [one.contents for one in others]


def test_program_order_adds_from_the_first_thread_to_the_last():
    x, y = np.random.default_rng(1).random(128, np.float32), np.zeros(1, np.float32)
    ptx = module_of(f"{VALUE}mov.b32 %f1, %r1; red.global.add.f32 [%rd21], %f1;", 2)
    run = Run(launch_of(x, y, threads=64, grid=2), range(2))
    (_, stored) = run_ptx(ptx, run, [x.tobytes(), y.tobytes()]).contents
    total = np.float32(0)
    for value in x:
        total += value
    assert np.frombuffer(stored, np.float32)[0] == total


@pytest.mark.parametrize("body", [SHARED, BLOCKS, WARPS, LAST, WAITS, EXCHANGE])
@pytest.mark.parametrize("seed", [0, 3])
def test_inputs_that_are_executed_together_do_not_meet(body, seed):
    """Each has global and shared memory of its own, and the order of warps and CTAs that it has alone; with a seed not
    that of atomics."""
    inputs = [np.random.default_rng(number).random(512, np.float32) for number in range(3)]
    each = [[one.tobytes() for one in (x, np.zeros(512, np.float32), np.zeros(1, np.uint32))] for x in inputs]
    kernel = read_kernel(module_of(body, 3, declarations=ROOM))
    buffers = inputs[0], np.zeros(512, np.float32), np.zeros(1, np.uint32)
    run = Run(launch_of(*buffers, threads=64, grid=8), range(8), seed)
    alone = [run_ptx(kernel, run, contents).contents for contents in each]
    together = run_together(kernel, run, each)
    assert together == alone or (seed and body in (SHARED, EXCHANGE))
