"""mbarrier, bulk copies, TMA, clusters."""

from __future__ import annotations

from dataclasses import replace

import pytest

np = pytest.importorskip("numpy")

from emulated import launch_of, module_of, run_body, run_both  # noqa: E402

from tritonhook.capture.launches.record import Tiling  # noqa: E402
from tritonhook.capture.launches.tensor_map import encoded  # noqa: E402
from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.emulate.run import Run  # noqa: E402
from tritonhook.emulate.tma import TensorMap  # noqa: E402
from tritonhook.ptxas.tool import find_ptxas  # noqa: E402
from tritonhook.ptxas.toolchain import Assembled, assemble  # noqa: E402
from tritonhook.verify.cpu import run_cubin  # noqa: E402

ROOM = ".shared .align 1024 .b8 room[4096]; .shared .align 8 .b64 gate;"
WAIT = "{name}: mbarrier.try_wait.parity.shared.b64 %p2, [gate], {parity}; @!%p2 bra {name};"
STORE = "mad.wide.u32 %rd9, %r20, 4, %rd20; st.global.b32 [%rd9], %r4;"


def test_a_phase_is_complete_when_all_have_arrived():
    """Warp 1 writes and arrives; warp 0 waits for that, and reads."""
    body = f"""setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 32; bar.sync 0; mov.u32 %r1, room;
    and.b32 %r2, %r20, 31; mad.lo.u32 %r3, %r2, 4, %r1; setp.ge.u32 %p3, %r20, 32; mov.u32 %r4, 5; @%p3 bra WRITER;
    {WAIT.format(name="AGAIN", parity=0)} ld.shared.b32 %r4, [%r3]; bra.uni END;
    WRITER: st.shared.b32 [%r3], %r20; mbarrier.arrive.shared.b64 %rd3, [gate];
    END: {STORE}"""
    (found,) = run_body(body, np.zeros(64, np.uint32), threads=64, declarations=ROOM)
    assert found.tolist() == [*range(32, 64), *[5] * 32]


def test_warps_that_wait_together_go_on_one_by_one():
    """Warps 0 and 1 wait for an mbarrier each; warp 0 goes on first and writes the register that held its address."""
    body = f"""setp.eq.u32 %p1, %r20, 0; mov.u32 %r1, room; shr.u32 %r2, %r20, 5; mad.lo.u32 %r3, %r2, 8, %r1;
    @%p1 mbarrier.init.shared.b64 [%r1], 1; @%p1 mbarrier.init.shared.b64 [%r1+8], 1; bar.sync 0; mov.u32 %r4, 0;
    setp.eq.u32 %p3, %r2, 2; @%p3 bra LAST;
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra AGAIN;
    add.u32 %r3, %r20, 1; mov.u32 %r5, 0;
    ON: add.u32 %r5, %r5, 1; add.u32 %r4, %r4, %r3; setp.lt.u32 %p5, %r5, 4; @%p5 bra ON; bra.uni END;
    LAST: and.b32 %r6, %r20, 31; setp.eq.u32 %p4, %r6, 0; @%p4 mbarrier.arrive.shared.b64 %rd3, [%r1];
    mov.u32 %r5, 0; MORE: add.u32 %r5, %r5, 1; setp.lt.u32 %p5, %r5, 99; @%p5 bra MORE;
    @%p4 mbarrier.arrive.shared.b64 %rd3, [%r1+8];
    END: {STORE}"""
    wanted, empty = [*(4 * (thread + 1) for thread in range(64)), *[0] * 32], np.zeros(96, np.uint32)
    assert run_body(body, empty, threads=96, declarations=ROOM)[0].tolist() == wanted
    for level in ("-O0", "-O3"):
        made = assemble(find_ptxas(), module_of(body, 1, declarations=ROOM), (level,))
        assert isinstance(made, Assembled)
        ran = run_cubin(made.cubin, "k", Run(launch_of(empty, threads=96), range(1)), [empty.tobytes()])
        assert np.frombuffer(ran.contents[0], np.uint32).tolist() == wanted, level


def test_phases_follow_one_another():
    body = f"""setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 64; bar.sync 0; mov.u32 %r4, 0;
    mbarrier.arrive.shared.b64 %rd3, [gate]; {WAIT.format(name="A", parity=0)} add.u32 %r4, %r4, 1;
    mbarrier.test_wait.parity.shared.b64 %p4, [gate], 1; selp.b32 %r5, 100, 0, %p4; add.u32 %r4, %r4, %r5;
    mbarrier.arrive.shared.b64 %rd3, [gate]; {WAIT.format(name="B", parity=1)}
    mbarrier.test_wait.shared.b64 %p4, [gate], %rd3; selp.b32 %r5, 10, 0, %p4; add.u32 %r4, %r4, %r5; {STORE}"""
    (found,) = run_body(body, np.zeros(64, np.uint32), threads=64, declarations=ROOM)
    assert found.tolist() == [11] * 64


def test_bytes_that_are_expected_hold_a_phase_open():
    body = f"""setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 1; bar.sync 0; mov.u32 %r1, room;
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [gate], 128; mbarrier.test_wait.parity.shared.b64 %p3, [gate], 0;
    selp.b32 %r4, 1000, 0, %p3;
    @%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd21], 128, [gate];
    {WAIT.format(name="A", parity=0)} mad.lo.u32 %r3, %r20, 4, %r1; ld.shared.b32 %r5, [%r3]; add.u32 %r4, %r4, %r5;
    {STORE}"""
    found, _ = run_body(body, np.zeros(32, np.uint32), np.arange(32, dtype=np.uint32) * 3, declarations=ROOM)
    assert found.tolist() == [3 * n for n in range(32)]


def test_a_phase_that_never_completes_is_a_hang():
    body = f"""setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 33; bar.sync 0;
    mbarrier.arrive.shared.b64 %rd3, [gate]; {WAIT.format(name="A", parity=0)}"""
    with pytest.raises(Hang, match="line"):
        run_body(body, np.zeros(1, np.uint32), declarations=ROOM, most_steps=1_000_000)


def test_too_many_arrivals_are_a_fault():
    body = """setp.eq.u32 %p1, %r20, 0; @%p1 mbarrier.init.shared.b64 [gate], 31; bar.sync 0;
    mbarrier.arrive.shared.b64 %rd3, [gate];"""
    with pytest.raises(Fault, match="32 arrivals at an mbarrier that waits for 31"):
        run_body(body, np.zeros(1, np.uint32), declarations=ROOM)


def test_an_mbarrier_that_nobody_made_is_a_fault():
    with pytest.raises(Fault, match="not initialised"):
        run_body("mbarrier.arrive.shared.b64 %rd3, [gate];", np.zeros(1, np.uint32), declarations=ROOM)


def test_a_cluster_reads_each_others_shared_memory():
    body = f"""mov.u32 %r1, room; mad.lo.u32 %r3, %r20, 4, 0; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r2, 4, %r1;
    st.shared.b32 [%r3], %r20; barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r6, %r3, %r5;
    ld.shared::cluster.b32 %r4, [%r6]; {STORE}"""
    (found,) = run_body(body, np.zeros(128, np.uint32), declarations=ROOM, grid=4, cluster=(2, 1, 1))
    assert found.tolist() == [*range(32, 64), *range(32), *range(96, 128), *range(64, 96)]


# --- descriptors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "strides", "begin"),
    [
        ((8, 1 << 30, 4, (1 << 31) - 1), (64, 16, 64), (0, (1 << 30) - 20 + 16, 2, 120)),
        ((8, 1 << 30, 0x7FFF_0000, 0x7FFF_0000), (64, 64, (1 << 35) - 64), (0, (1 << 30) - 20 + 16, 120, 1 << 30)),
    ],
)
def test_rows_of_a_packed_sequence_end_where_it_does(shape, strides, begin) -> None:
    """20 rows from row 100 on, of which a box takes the last 4; the addresses wrap around."""
    tiling = Tiling(9, shape, strides, (8, 8, 1, 1), (1,) * 4)
    addresses, inside = TensorMap.of(tiling, 0x1000 - tiling.begin).places(begin)
    first = addresses.reshape(8, 8)[:, 0] - 0x1000 - (2 * 16 if tiling.begin else 0)
    assert list(first[:4]) == [64 * row for row in range(116, 120)]
    assert list(inside.reshape(8, 8)[:, 0]) == [True] * 4 + [False] * 4


def described(**other):
    made = Tiling(**{"element": 2, "shape": (4, 4), "strides": (16,), "box": (4, 4), "steps": (1, 1), **other})
    return int.from_bytes(encoded(replace(made, by_host=True), 0), "little") & ~(1 << 85)  # that it is large


BEFORE = described()
CHANGES = {  # the whole descriptor then; the bits that `encoded` does not write, by their positions
    "rank.B b32 [D], 2": BEFORE ^ (1 ^ 2) << 68,
    "elemtype.B b32 [D], 10": described(element=9),
    "elemtype.B b32 [D], 11": described(element=11),
    "global_dim.B b32 [D], 1, 70000": described(shape=(4, 70000)),
    "box_dim.B b32 [D], 1, 200": described(box=(4, 200)),
    "element_stride.B b32 [D], 1, 5": BEFORE | 4 << 419,
    f"global_stride.B b64 [D], 0, {9 << 33}": described(strides=(9 << 33,)),
    "swizzle_mode.B b32 [D], 3": described(swizzle=3),
    "interleave_layout.B b32 [D], 1": BEFORE | 1 << 75,
    "fill_mode.B b32 [D], 1": BEFORE | 1 << 79,
}


@pytest.mark.parametrize("text", CHANGES)
def test_a_field_of_a_descriptor_is_replaced(text):
    line = text.replace(".B ", ".global.b1024.").replace("[D]", "[%rd20]")
    descriptor = np.frombuffer(BEFORE.to_bytes(128, "little"), np.uint8)
    (found,) = run_both(f"setp.ne.u32 %p1, %r20, 0; @%p1 exit; tensormap.replace.tile.{line};", descriptor)
    assert int.from_bytes(found.tobytes(), "little") == CHANGES[text]


def test_a_copy_by_a_descriptor_that_the_kernel_has_changed():
    descriptor = np.frombuffer(BEFORE.to_bytes(128, "little"), np.uint8)
    tensor = np.arange(16 * 16, dtype=np.uint32)
    fields = "".join(
        f"tensormap.replace.tile.{name}.global.b1024.{text};"
        for name, text in (
            *(("global_address", "b64 [%rd20], %rd21"), ("global_stride", "b64 [%rd20], 0, 64")),
            *(
                ("global_dim", "b32 [%rd20], 0, 16"),
                ("global_dim", "b32 [%rd20], 1, 5"),
                ("box_dim", "b32 [%rd20], 0, 8"),
            ),
        )
    )
    body = f"""mov.u32 %r1, room; mov.u32 %r2, gate; setp.ne.u32 %p1, %r20, 0; @%p1 bra ALL;
    mbarrier.init.shared.b64 [gate], 1; fence.mbarrier_init.release.cluster; {fields}
    fence.proxy.tensormap::generic.release.gpu; fence.proxy.tensormap::generic.acquire.gpu [%rd20], 128;
    mbarrier.arrive.expect_tx.shared.b64 _, [gate], 128; cp.async.bulk.tensor.2d.shared::cluster.global.tile
    .mbarrier::complete_tx::bytes [%r1], [%rd20, {{4, 2}}], [%r2];
    ALL: bar.sync 0; {WAIT.format(name="AGAIN", parity=0)} mad.lo.u32 %r3, %r20, 4, %r1; ld.shared.b32 %r4, [%r3];
    mad.wide.u32 %rd9, %r20, 4, %rd22; st.global.b32 [%rd9], %r4;"""
    found = run_both(
        body.replace("tile\n    .", "tile."), descriptor, tensor, np.zeros(32, np.uint32), declarations=ROOM
    )[2]
    wanted = np.zeros((4, 8), np.uint32)
    wanted[:3] = tensor.reshape(16, 16)[2:5, 4:12]
    assert found.reshape(4, 8).tolist() == wanted.tolist()


STORES = {  # modifiers and first element of a row: the first row then, before [10, 20, ..., 80]. As an H100 has it
    ("async", "tile", 0): [1, 2, 3, 4, 50, 60, 70, 80],
    ("async", "tile", 4): [10, 20, 30, 40, 1, 2, 3, 4],  # the tensor has one of these: whole pieces of 16 bytes
    ("async", "tile", 8): [10, 20, 30, 40, 50, 60, 70, 80],
    ("reduce", "add.tile", 4): [10, 20, 30, 40, 51, 62, 73, 84],
    ("reduce", "min", 0): [1, 2, 3, 4, 50, 60, 70, 80],
    ("reduce", "xor.tile", 0): [11, 22, 29, 44, 50, 60, 70, 80],
    ("async", "tile", 1): "from element 1 of a row on, which is not a multiple of 16 bytes",
    ("async", "tile", -4): "to the negative coordinate -4",
}


@pytest.mark.parametrize("how", STORES, ids=str)
def test_a_tile_is_stored_in_pieces_of_16_bytes(how):
    """By a descriptor of rows of 5 elements, 8 apart, that the kernel moves to global memory as Triton's do."""
    kind, modifiers, begin = how
    descriptor = np.frombuffer(described(shape=(5, 4), strides=(32,)).to_bytes(128, "little"), np.uint8)
    reduce = "cp.reduce.async" if kind == "reduce" else "cp.async"
    body = f"""mov.u32 %r1, room; mul.lo.u32 %r2, %r20, 4; add.u32 %r3, %r1, %r2; cvt.u64.u32 %rd1, %r2;
    add.u64 %rd2, %rd20, %rd1; ld.global.b32 %r4, [%rd2]; st.shared.b32 [%r3+1024], %r4; add.u32 %r5, %r20, 1;
    st.shared.b32 [%r3], %r5; setp.eq.u32 %p1, %r20, 0; bar.warp.sync -1; cvt.u64.u32 %rd3, %r1;
    add.u64 %rd3, %rd3, 1024; @%p1 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%rd3], %rd21;
    bar.warp.sync -1;
    tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd20], [%rd3], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%rd20], 128; mov.u32 %r6, {begin}; mov.u32 %r7, 0;
    @%p1 {reduce}.bulk.tensor.2d.global.shared::cta.{modifiers}.bulk_group [%rd20, {{%r6, %r7}}], [%r1];"""
    rows = np.tile(np.arange(10, 90, 10, dtype=np.uint32), 4)
    if isinstance(wanted := STORES[how], str):
        with pytest.raises(Fault, match=wanted):
            run_body(body, descriptor, rows, declarations=ROOM)
        return
    found = run_both(body, descriptor, rows, declarations=ROOM)[1]
    assert found[:8].tolist() == wanted


def test_shared_memory_is_cleared():
    body = f"""mov.u32 %r1, room; mad.lo.u32 %r3, %r20, 4, %r1; st.shared.b32 [%r3], %r20; bar.sync 0; mov.u64 %rd1, 40;
    setp.eq.u32 %p1, %r20, 0; @%p1 st.bulk.weak.shared::cta [%r1+24], %rd1, 0; bar.sync 0; ld.shared.b32 %r4, [%r3];
    {STORE}"""
    (found,) = run_both(body, np.zeros(64, np.uint32), threads=64, declarations=ROOM, target="sm_100a")
    assert found.tolist() == [*range(6), *[0] * 10, *range(16, 64)]
