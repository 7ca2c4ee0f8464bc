"""The probes of the capability matrix: PTX, the PTX version that introduced it, and the expected SASS opcode."""

# ruff: noqa: E501  (one probe per line: the small differences between neighbours are easy to see)
from __future__ import annotations

from tritonhook.lab.capabilities import InstructionProbe


def vector(kind: str, first: int, count: int = 4) -> str:
    """Write `count` registers as a PTX vector: {%f0,%f1,%f2,%f3}."""
    return "{" + ",".join(f"%{kind}{first + i}" for i in range(count)) + "}"


def _regs(kind: str, first: int, count: int) -> str:
    return " ".join(f"{kind}{first + i}" for i in range(count))


def _mma(
    name: str, version: str, types: str, expected: str, a: int = 4, b: int = 2, accumulators: str = "f", count: int = 4,
    tail: str = "", prefix: str = "mma.sync.aligned",
) -> InstructionProbe:  # fmt: skip
    c = vector(accumulators, 0 if accumulators == "f" else 12, count)
    code = f"{prefix}.{types} {c}, {vector('r', 0, a)}, {vector('r', 4, b)}, {c}{tail};"
    return InstructionProbe(
        "mma.sync", name, version, code, expected, _regs(accumulators, 0 if accumulators == "f" else 12, count)
    )


def _scaled(
    name: str, version: str, types: str, expected: str, a: int = 4, b: int = 2, sparse: str = ""
) -> InstructionProbe:
    tail = f"{sparse}, {{%r10}}, {{%h0,%h0}}, {{%r11}}, {{%h0,%h0}}"
    prefix = "mma.sp::ordered_metadata.sync.aligned" if sparse else "mma.sync.aligned"
    probe = _mma(name, version, types, expected, a, b, tail=tail, prefix=prefix)
    return InstructionProbe(probe.group, name, version, "mov.b16 %h0, 0; " + probe.code, expected, probe.outputs)


_SPARSE = "mma.sp::ordered_metadata.sync.aligned"
_MMA = (
    _mma("f16", "7.0", "m16n8k16.row.col.f32.f16.f16.f32", "HMMA.16816.F32"),
    _mma("f16, f16 accumulate", "7.0", "m16n8k16.row.col.f16.f16.f16.f16", "HMMA.16816.F16", accumulators="r", count=2),
    _mma("bf16", "7.0", "m16n8k16.row.col.f32.bf16.bf16.f32", "HMMA.16816.F32.BF16"),
    _mma("tf32", "7.0", "m16n8k8.row.col.f32.tf32.tf32.f32", "HMMA.1688.F32.TF32"),
    InstructionProbe(
        "mma.sync", "f64 m8n8k4", "7.0",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd0,%fd1}, {%fd2}, {%fd3}, {%fd0,%fd1};", "DMMA", "fd0 fd1",
    ),
    InstructionProbe(
        "mma.sync", "f64 m16n8k8", "7.8",
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%fd0,%fd1,%fd2,%fd3}, {%fd4,%fd5,%fd6,%fd7}, {%fd2,%fd3}, "
        "{%fd0,%fd1,%fd2,%fd3};", "DMMA.16", "fd0 fd1 fd2 fd3",
    ),
    _mma("s8", "7.0", "m16n8k32.row.col.s32.s8.s8.s32", "IMMA.16832", accumulators="r"),
    _mma("s4", "7.0", "m16n8k64.row.col.s32.s4.s4.s32", "IMMA.16864", accumulators="r"),
    _mma("b1 xor", "7.0", "m16n8k256.row.col.s32.b1.b1.s32.xor.popc", "BMMA.168256.XOR", accumulators="r"),
    _mma("b1 and", "7.1", "m16n8k256.row.col.s32.b1.b1.s32.and.popc", "BMMA.168256.AND", accumulators="r"),
    _mma("e4m3", "8.4", "m16n8k32.row.col.f32.e4m3.e4m3.f32", "QMMA.16832.F32.E4M3.E4M3"),
    _mma("e5m2", "8.4", "m16n8k32.row.col.f32.e5m2.e5m2.f32", "QMMA.16832.F32.E5M2.E5M2"),
    _mma("e4m3 m16n8k16", "8.7", "m16n8k16.row.col.f32.e4m3.e4m3.f32", "QMMA.16816", a=2, b=1),
    _mma(
        "e4m3, f16 accumulate", "8.7", "m16n8k32.row.col.f16.e4m3.e4m3.f16", "QMMA.16832.F16", accumulators="r", count=2
    ),
    *(
        _mma(f"kind::f8f6f4 {t}", "8.7", f"kind::f8f6f4.m16n8k32.row.col.f32.{t}.{t}.f32", f"QMMA.16832.F32.{t.upper()}")
        for t in ("e4m3", "e3m2", "e2m3", "e2m1")
    ),
    *(
        _scaled(
            f"kind::mxf8f6f4 {t}, block_scale", "8.7",
            f"m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.{t}.{t}.f32.ue8m0", "QMMA.SF.16832",
        )
        for t in ("e4m3", "e2m1")
    ),
    _scaled(
        "kind::mxf4 e2m1, block_scale", "8.7",
        "m16n8k64.row.col.kind::mxf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", "OMMA.SF.16864",
    ),
    _scaled(
        "kind::mxf4nvf4 e2m1, ue4m3 scales", "8.7",
        "m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "OMMA.SF.16864",
    ),
    _mma("sparse f16", "8.5", "m16n8k32.row.col.f32.f16.f16.f32", "HMMA.SP", b=4, tail=", %r8, 0x0", prefix=_SPARSE),
    _mma("sparse s8", "8.5", "m16n8k64.row.col.s32.s8.s8.s32", "IMMA.SP", b=4, accumulators="r", tail=", %r8, 0x0", prefix=_SPARSE),
    _mma("sparse e4m3", "8.5", "m16n8k64.row.col.f32.e4m3.e4m3.f32", "QMMA.SP", b=4, tail=", %r8, 0x0", prefix=_SPARSE),
    _scaled(
        "sparse kind::mxf8f6f4 e4m3, block_scale", "8.7",
        "m16n8k64.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.e4m3.e4m3.f32.ue8m0", "QMMA.SF.SP",
        b=4, sparse=", %r8, 0x0",
    ),
    _scaled(
        "sparse kind::mxf4nvf4 e2m1, ue4m3 scales", "8.7",
        "m16n8k128.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "OMMA.SF.SP",
        b=4, sparse=", %r8, 0x0",
    ),
)  # fmt: skip

_MATRIX = (
    ("ldmatrix x4.b16", "6.5", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {D4}, [%r61];", "LDSM.16.M88.4", 4),
    ("ldmatrix x4.trans.b16", "6.5", "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {D4}, [%r61];", "LDSM.16.MT88.4", 4),
    ("ldmatrix m16n16.x2.trans.b8", "8.6", "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {D4}, [%r61];", "LDSM.8.MT1616.2", 4),
    ("ldmatrix m16n16.x2.trans.b8x16.b6x16_p32", "8.6", "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b6x16_p32 {D4}, [%r61];", "LDSM.U6.*MT1616|LDSM.*MT1616", 4),
    ("ldmatrix m16n16.x2.trans.b8x16.b4x16_p64", "8.6", "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64 {D4}, [%r61];", "LDSM.*MT1616", 4),
    ("ldmatrix m8n16.x4.b8x16.b6x16_p32", "8.6", "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32 {D4}, [%r61];", "LDSM.*M816", 4),
    ("ldmatrix m8n16.x4.b8x16.b4x16_p64", "8.6", "ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b4x16_p64 {D4}, [%r61];", "LDSM.*M816", 4),
    ("stmatrix x4.b16", "7.8", "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r61], {%r0,%r1,%r2,%r3};", "STSM.16.M88.4", 0),
    ("stmatrix x4.trans.b16", "7.8", "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r61], {%r0,%r1,%r2,%r3};", "STSM.16.MT88.4", 0),
    ("stmatrix m16n8.x4.trans.b8", "8.6", "stmatrix.sync.aligned.m16n8.x4.trans.shared.b8 [%r61], {%r0,%r1,%r2,%r3};", "STSM.8.MT168.4", 0),
    ("movmatrix", "7.8", "movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r0;", "MOVM.16.MT88", 1),
)  # fmt: skip


def _wgmma(
    name: str, shape: str, expected: str, tail: str = "", accumulators: str = "f", version: str = "8.0"
) -> InstructionProbe:
    first = 0 if accumulators == "f" else 8
    code = (
        "wgmma.fence.sync.aligned; "
        f"wgmma.mma_async.{shape} {vector(accumulators, first, 8)}, %rd10, %rd11{tail};"
        " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )
    return InstructionProbe("wgmma", name, version, code, expected, _regs(accumulators, first, 8))


_WGMMA = (
    _wgmma("f16", "sync.aligned.m64n16k16.f32.f16.f16", "HGMMA", ", 1, 1, 1, 0, 0"),
    _wgmma("bf16", "sync.aligned.m64n16k16.f32.bf16.bf16", "HGMMA", ", 1, 1, 1, 0, 0"),
    _wgmma("tf32", "sync.aligned.m64n16k8.f32.tf32.tf32", "HGMMA", ", 1, 1, 1"),
    _wgmma("e4m3", "sync.aligned.m64n16k32.f32.e4m3.e4m3", "QGMMA", ", 1, 1, 1"),
    _wgmma("e5m2", "sync.aligned.m64n16k32.f32.e5m2.e5m2", "QGMMA", ", 1, 1, 1"),
    _wgmma("s8", "sync.aligned.m64n16k32.s32.s8.s8", "IGMMA", ", 1", "r"),
    _wgmma("b1", "sync.aligned.m64n16k256.s32.b1.b1.and.popc", "BGMMA", ", 1", "r"),
    InstructionProbe(
        "wgmma", "sparse f16", "8.2",
        "wgmma.fence.sync.aligned; wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16 "
        f"{vector('f', 0, 8)}, %rd10, %rd11, %r8, 0, 1, 1, 1, 0, 0;"
        " wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;", "HGMMA.SP", _regs("f", 0, 8),
    ),
)  # fmt: skip


def _tcgen05_mma(
    name: str, kind: str, expected: str, scales: str = "", form: str = "", cta_group: int = 1
) -> InstructionProbe:
    code = f"@%p0 tcgen05.mma{form}.cta_group::{cta_group}.kind::{kind} [%r62], %rd10, %rd11, {scales or '%r12'}, %p0;"
    return InstructionProbe("tcgen05", name, "8.6", code, expected)


_SF = "%r12, [%r14], [%r15]"
_TCGEN05 = (
    InstructionProbe("tcgen05", "alloc", "8.6", "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r60], 128;", "UTCATOMSWS.FIND_AND_SET"),
    InstructionProbe("tcgen05", "dealloc", "8.6", "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r62, 128;", "UTCATOMSWS"),
    InstructionProbe("tcgen05", "ld 32x32b.x4", "8.6", "tcgen05.ld.sync.aligned.32x32b.x4.b32 {%r20,%r21,%r22,%r23}, [%r62]; tcgen05.wait::ld.sync.aligned;", "LDTM", "r20 r21 r22 r23"),
    InstructionProbe("tcgen05", "ld.red 32x32b.x4.max.f32", "8.8", "tcgen05.ld.red.sync.aligned.32x32b.x4.max.f32 {%r20,%r21,%r22,%r23}, %r24, [%r62]; tcgen05.wait::ld.sync.aligned;", "LDTM", "r20 r21 r22 r23 r24"),
    InstructionProbe("tcgen05", "st 32x32b.x4", "8.6", "tcgen05.st.sync.aligned.32x32b.x4.b32 [%r62], {%r0,%r1,%r2,%r3}; tcgen05.wait::st.sync.aligned;", "STTM"),
    InstructionProbe("tcgen05", "cp 128x256b", "8.6", "@%p0 tcgen05.cp.cta_group::1.128x256b [%r62], %rd10;", "UTCCP.T.S"),
    InstructionProbe("tcgen05", "cp 32x128b.warpx4", "8.6", "@%p0 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r62], %rd10;", "UTCCP.T.S.4x32"),
    InstructionProbe("tcgen05", "cp 128x256b.b8x16.b4x16_p64", "8.6", "@%p0 tcgen05.cp.cta_group::1.128x256b.b8x16.b4x16_p64 [%r62], %rd10;", "UTCCP"),
    InstructionProbe("tcgen05", "shift", "8.6", "@%p0 tcgen05.shift.cta_group::1.down [%r62];", "UTCSHIFT"),
    InstructionProbe("tcgen05", "commit", "8.6", "@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r60];", "UTCBAR"),
    InstructionProbe("tcgen05", "commit.multicast::cluster", "8.6", "@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r60], %h0;", "UTCBAR.MULTICAST"),
    _tcgen05_mma("mma kind::f16", "f16", "UTCHMMA"),
    _tcgen05_mma("mma kind::tf32", "tf32", "UTCHMMA"),
    _tcgen05_mma("mma kind::f8f6f4", "f8f6f4", "UTCQMMA"),
    _tcgen05_mma("mma kind::i8", "i8", "UTCIMMA"),
    _tcgen05_mma("mma kind::mxf8f6f4, block_scale", "mxf8f6f4.block_scale.scale_vec::1X", "UTCQMMA", _SF),
    _tcgen05_mma("mma kind::mxf4, block_scale", "mxf4.block_scale.scale_vec::2X", "UTCOMMA", _SF),
    _tcgen05_mma("mma kind::mxf4nvf4, scale_vec::4X", "mxf4nvf4.block_scale.scale_vec::4X", "UTCOMMA", _SF),
    _tcgen05_mma("mma kind::f16, cta_group::2", "f16", "UTCHMMA.2CTA", cta_group=2),
    _tcgen05_mma("mma.ws kind::f16", "f16", "UTCHMMA", form=".ws"),
    InstructionProbe("tcgen05", "mma.sp kind::f16", "8.6", "@%p0 tcgen05.mma.sp.cta_group::1.kind::f16 [%r62], %rd10, %rd11, [%r14], %r12, %p0;", "UTCHMMA"),
)  # fmt: skip

_BULK = "mbarrier::complete_tx::bytes"
_TENSOR = "cp.async.bulk.tensor"
_COPIES = (
    ("cp.async 16 bytes", "7.0", "cp.async.cg.shared.global [%r61], [%rd0], 16; cp.async.wait_all;", "LDGSTS.E.BYPASS.128|LDGSTS"),
    ("cp.async.mbarrier.arrive", "7.0", "cp.async.mbarrier.arrive.noinc.shared.b64 [%r60];", "ARRIVES.LDGSTSBAR"),
    ("cp.async.bulk load, shared::cluster", "8.0", f"cp.async.bulk.shared::cluster.global.{_BULK} [%r61], [%rd0], 512, [%r60];", "UBLKCP"),
    ("cp.async.bulk load, shared::cta", "8.6", f"cp.async.bulk.shared::cta.global.{_BULK} [%r61], [%rd0], 512, [%r60];", "UBLKCP"),
    ("cp.async.bulk load, multicast::cluster", "8.0", f"cp.async.bulk.shared::cluster.global.{_BULK}.multicast::cluster [%r61], [%rd0], 512, [%r60], %h0;", "UBLKCP"),
    ("cp.async.bulk store", "8.0", "cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r61], 512; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;", "UBLKCP"),
    ("cp.async.bulk store, cp_mask", "8.6", "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd0], [%r61], 512, %h0;", "UBLKCP"),
    ("cp.async.bulk shared to shared::cluster", "8.0", f"cp.async.bulk.shared::cluster.shared::cta.{_BULK} [%r61], [%r62], 512, [%r60];", "UBLKCP"),
    ("cp.async.bulk.prefetch.L2", "8.0", "cp.async.bulk.prefetch.L2.global [%rd0], 512;", "UBLKPF|UBLKL2CCTL.PF"),
    ("cp.reduce.async.bulk add.f32", "8.0", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd0], [%r61], 512;", "UBLKRED"),
    ("cp.reduce.async.bulk shared::cluster add.u32", "8.0", f"cp.reduce.async.bulk.shared::cluster.shared::cta.{_BULK}.add.u32 [%r61], [%r62], 512, [%r60];", "UBLKRED"),
)  # fmt: skip


def _tensor_load(
    name: str, version: str, form: str, coordinates: int, tail: str = "", space: str = "shared::cluster"
) -> tuple[str, str, str, str]:
    at = ",".join(f"%r{i}" for i in range(coordinates))
    code = f"{_TENSOR}.{form.replace('SPACE', space)} [%r61], [%rd1, {{{at}}}], [%r60]{tail};"
    return name, version, code, "UTMALDG"


_TMA = (
    _tensor_load("load 2d, shared::cluster", "8.0", f"2d.SPACE.global.tile.{_BULK}", 2),
    _tensor_load("load 2d, shared::cta", "8.6", f"2d.SPACE.global.tile.{_BULK}", 2, space="shared::cta"),
    _tensor_load("load 5d, shared::cluster", "8.0", f"5d.SPACE.global.tile.{_BULK}", 5),
    _tensor_load("load 5d, shared::cta", "8.6", f"5d.SPACE.global.tile.{_BULK}", 5, space="shared::cta"),
    _tensor_load("load 2d, multicast::cluster", "8.0", f"2d.SPACE.global.tile.{_BULK}.multicast::cluster", 2, ", %h0"),
    _tensor_load("load 2d, cta_group::2", "8.6", f"2d.SPACE.global.tile.{_BULK}.cta_group::2", 2),
    _tensor_load("load 3d im2col, shared::cluster", "8.0", f"3d.SPACE.global.im2col.{_BULK}", 3, ", {%h0}"),
    _tensor_load("load 3d im2col, shared::cta", "8.6", f"3d.SPACE.global.im2col.{_BULK}", 3, ", {%h0}", "shared::cta"),
    _tensor_load("load 3d im2col::w, shared::cluster", "8.6", f"3d.SPACE.global.im2col::w.{_BULK}", 3, ", {%h0,%h1}"),
    _tensor_load("load 3d im2col::w, shared::cta", "8.6", f"3d.SPACE.global.im2col::w.{_BULK}", 3, ", {%h0,%h1}", "shared::cta"),
    _tensor_load("load gather4, shared::cluster", "8.6", f"2d.SPACE.global.tile::gather4.{_BULK}", 5),
    _tensor_load("load gather4, shared::cta", "8.6", f"2d.SPACE.global.tile::gather4.{_BULK}", 5, space="shared::cta"),
    ("store 2d", "8.0", f"{_TENSOR}.2d.global.shared::cta.tile.bulk_group [%rd1, {{%r0,%r1}}], [%r61];", "UTMASTG"),
    ("store scatter4", "8.6", f"{_TENSOR}.2d.global.shared::cta.tile::scatter4.bulk_group [%rd1, {{%r0,%r1,%r2,%r3,%r4}}], [%r61];", "UTMASTG"),
    ("reduce add 2d", "8.0", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {%r0,%r1}], [%r61];", "UTMAREDG"),
    ("prefetch 2d to L2", "8.0", f"{_TENSOR.replace('.tensor', '.prefetch.tensor')}.2d.L2.global.tile [%rd1, {{%r0,%r1}}];", "UTMAPF|UTMAL2CCTL.PF"),
    ("prefetch.tensormap", "8.0", "prefetch.tensormap [%rd1];", "UTMACCTL"),
    ("tensormap.replace", "8.3", "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r61], %rd2;", "ATOMS|STS"),
    ("fence.proxy.tensormap acquire", "8.3", "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;", "UTMACCTL.IV"),
)  # fmt: skip

_CLUSTER = (
    ("barrier.cluster arrive and wait", "7.8", "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;", "UCGABAR_ARV|UCGABAR_WAIT", ""),
    ("mapa.shared::cluster", "7.8", "mapa.shared::cluster.u32 %r20, %r61, %r1;", "MAPA|PRMT", "r20"),
    ("getctarank", "7.8", "getctarank.shared::cluster.u32 %r20, %r1;", "SHF|PRMT", "r20"),
    ("ld.shared::cluster", "7.8", "ld.shared::cluster.u32 %r20, [%r1];", r"LD(\.|$)|LDS", "r20"),
    ("st.shared::cluster", "7.8", "st.shared::cluster.u32 [%r1], %r2;", r"ST(\.|$)|STS", ""),
    ("atom.shared::cluster.add", "7.8", "atom.shared::cluster.add.u32 %r20, [%r1], %r2;", "ATOM", "r20"),
    ("st.async", "8.1", "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3];", "STAS", ""),
    ("red.async", "8.1", "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];", "REDAS", ""),
    ("mbarrier.arrive, remote", "8.0", "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];", "U?SYNCS.ARRIVE", ""),
    ("%cluster_ctarank", "7.8", "mov.u32 %r20, %cluster_ctarank;", "S2U?R|R2UR", "r20"),
    ("clusterlaunchcontrol.try_cancel", "8.6", "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r61], [%r60];", "UGETNEXTWORKID", ""),
    ("clusterlaunchcontrol.try_cancel.multicast", "8.6", "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128 [%r61], [%r60];", "UGETNEXTWORKID", ""),
    ("griddepcontrol.wait", "7.8", "griddepcontrol.wait;", "ACQBULK", ""),
    ("griddepcontrol.launch_dependents", "7.8", "griddepcontrol.launch_dependents;", "PREEXIT", ""),
)  # fmt: skip

_SYNC = (
    ("mbarrier.init", "7.0", "mbarrier.init.shared.b64 [%r60], 1;", "U?SYNCS.EXCH|STS", ""),
    ("mbarrier.arrive.expect_tx", "8.0", "mbarrier.arrive.expect_tx.shared.b64 %rd20, [%r60], 512;", "U?SYNCS.ARRIVE.TRANS64", "rd20"),
    ("mbarrier.try_wait.parity", "7.8", "mbarrier.try_wait.parity.shared.b64 %p1, [%r60], %r1;", "U?SYNCS.PHASECHK", "p1"),
    ("setmaxnreg", "8.0", "setmaxnreg.inc.sync.aligned.u32 200;", "USETMAXREG", "", ".maxnreg 128"),
    ("setmaxnreg beside a TMA load, shared::cluster", "8.0", f"setmaxnreg.inc.sync.aligned.u32 200; {_TMA[0][2]}", "USETMAXREG", "", ".maxnreg 128"),
    ("elect.sync", "8.0", "elect.sync %r20|%p1, 0xffffffff;", "ELECT", "r20 p1"),
    ("nanosleep", "6.3", "nanosleep.u32 %r1;", "NANOSLEEP", ""),
    ("redux.sync.add.s32", "7.0", "redux.sync.add.s32 %r20, %r1, 0xffffffff;", "REDUX", "r20"),
    ("redux.sync.max.f32", "8.6", "redux.sync.max.f32 %f20, %f1, 0xffffffff;", "CREDUX|REDUX", "f20"),
    ("match.any.sync", "6.0", "match.any.sync.b32 %r20, %r1, 0xffffffff;", "MATCH", "r20"),
    ("multimem.ld_reduce f16x2", "8.1", "multimem.ld_reduce.relaxed.sys.global.add.f16x2 %r20, [%rd0];", "LDGMC", "r20"),
    ("multimem.ld_reduce e4m3x4", "8.6", "multimem.ld_reduce.relaxed.sys.global.add.acc::f16.e4m3x4 %r20, [%rd0];", "LDGMC", "r20"),
    ("multimem.red f32", "8.1", "multimem.red.relaxed.sys.global.add.f32 [%rd0], %f1;", "REDG|RED", ""),
    ("multimem.st f32", "8.1", "multimem.st.relaxed.sys.global.f32 [%rd0], %f1;", "STG|ST", ""),
)  # fmt: skip

_MATH = (
    ("fma.rn.f32x2", "8.6", "fma.rn.f32x2 %rd20, %rd2, %rd3, %rd4;", "FFMA2", "rd20"),
    ("add.rn.f32x2", "8.6", "add.rn.f32x2 %rd20, %rd2, %rd3;", "FADD2", "rd20"),
    ("mul.rn.f32x2", "8.6", "mul.rn.f32x2 %rd20, %rd2, %rd3;", "FMUL2", "rd20"),
    ("max.f32, three inputs", "8.8", "max.f32 %f20, %f1, %f2, %f3;", "FMNMX3", "f20"),
    ("fma.rn.f32.f16 (mixed)", "8.6", "fma.rn.f32.f16 %f20, %h0, %h1, %f1;", "FHFMA", "f20"),
    ("add.f32.bf16 (mixed)", "8.6", "add.f32.bf16 %f20, %h0, %f1;", "FHADD", "f20"),
    ("ex2.approx.ftz.f32", "2.0", "ex2.approx.ftz.f32 %f20, %f1;", "MUFU.EX2", "f20"),
    ("ex2.approx.f16x2", "7.0", "ex2.approx.f16x2 %r20, %r1;", "MUFU.EX2.F16", "r20"),
    ("ex2.approx.ftz.bf16x2", "7.8", "ex2.approx.ftz.bf16x2 %r20, %r1;", "MUFU.EX2.BF16", "r20"),
    ("tanh.approx.f32", "7.0", "tanh.approx.f32 %f20, %f1;", "MUFU.TANH", "f20"),
    ("tanh.approx.bf16x2", "7.8", "tanh.approx.bf16x2 %r20, %r1;", "MUFU.TANH", "r20"),
    ("fma.rn.bf16x2", "7.0", "fma.rn.bf16x2 %r20, %r1, %r2, %r3;", "HFMA2.*BF16", "r20"),
    ("add.rn.bf16x2", "7.8", "add.rn.bf16x2 %r20, %r1, %r2;", "HADD2.BF16|HFMA2.*BF16", "r20"),
    ("max.s16x2", "8.0", "max.s16x2 %r20, %r1, %r2;", "VIMNMX.S16x2|VIMNMX", "r20"),
    ("dp4a.s32.s32", "5.0", "dp4a.s32.s32 %r20, %r1, %r2, %r3;", "IDP.4A", "r20"),
)  # fmt: skip

_CONVERT = (
    ("e4m3x2 from f32", "7.8", "cvt.rn.satfinite.e4m3x2.f32 %h4, %f1, %f2;", "F2FP.*E4M3", "h4"),
    ("e5m2x2 from f32", "7.8", "cvt.rn.satfinite.e5m2x2.f32 %h4, %f1, %f2;", "F2FP.*E5M2", "h4"),
    ("f16x2 from e4m3x2", "7.8", "cvt.rn.f16x2.e4m3x2 %r20, %h0;", "F2FP.*E4M3", "r20"),
    ("e2m1x2 from f32", "8.6", "{ .reg .b8 %b; cvt.rn.satfinite.e2m1x2.f32 %b, %f1, %f2; cvt.u32.u8 %r20, %b; }", "F2FP.*E2M1", "r20"),
    ("f16x2 from e2m1x2", "8.6", "{ .reg .b8 %b, %c; mov.b16 {%b,%c}, %h0; cvt.rn.f16x2.e2m1x2 %r20, %b; }", "F2FP.*E2M1", "r20"),
    ("e3m2x2 from f32", "8.6", "cvt.rn.satfinite.e3m2x2.f32 %h4, %f1, %f2;", "F2FP.*E3M2", "h4"),
    ("e2m3x2 from f32", "8.6", "cvt.rn.satfinite.e2m3x2.f32 %h4, %f1, %f2;", "F2FP.*E2M3", "h4"),
    ("ue8m0x2 from f32", "8.6", "cvt.rp.satfinite.ue8m0x2.f32 %h4, %f1, %f2;", "F2FP.*E8", "h4"),
    ("bf16x2 from ue8m0x2", "8.6", "cvt.rn.bf16x2.ue8m0x2 %r20, %h0;", "F2FP.*E8", "r20"),
    ("f16x2 from f32, stochastic", "8.7", "cvt.rs.f16x2.f32 %r20, %f1, %f2, %r1;", "F2FP.*RS|F2FP", "r20"),
    ("e4m3x4 from f32, stochastic", "8.7", "cvt.rs.satfinite.e4m3x4.f32 %r20, {%f1,%f2,%f3,%f4}, %r1;", "F2FP.*E4M3", "r20"),
    ("f16x2 from f32", "7.0", "cvt.rn.f16x2.f32 %r20, %f1, %f2;", "F2FP", "r20"),
    ("tf32 from f32", "7.0", "cvt.rna.tf32.f32 %r20, %f1;", "F2F.TF32|F2FP.*TF32", "r20"),
)  # fmt: skip

_MEMORY = (
    ("ld.global.v8.f32 (256 bits)", "8.8", "ld.global.v8.f32 {%f20,%f21,%f22,%f23,%f24,%f25,%f26,%f27}, [%rd2];", r"LDG.*256", "f20 f21 f22 f23 f24 f25 f26 f27"),
    ("st.global.v8.f32 (256 bits)", "8.8", "st.global.v8.f32 [%rd2], {%f0,%f1,%f2,%f3,%f4,%f5,%f6,%f7};", r"STG.*256", ""),
    ("ld.global.b128 relaxed", "8.3", "{ .reg .b128 %q; ld.relaxed.gpu.global.b128 %q, [%rd2]; mov.b128 {%rd20,%rd21}, %q; }", r"LDG.*128", "rd20 rd21"),
    ("atom.global.add.v4.f32", "8.1", "atom.global.add.v4.f32 {%f20,%f21,%f22,%f23}, [%rd2], {%f0,%f1,%f2,%f3};", "ATOM", "f20 f21 f22 f23"),
    ("red.global.add.noftz.v4.bf16x2", "8.1", "red.global.add.noftz.v4.bf16x2 [%rd2], {%r0,%r1,%r2,%r3};", "RED|ATOM", ""),
    ("red.global.add.noftz.bf16x2", "7.8", "red.global.add.noftz.bf16x2 [%rd2], %r0;", "RED", ""),
    ("atom.global.cas.b128", "8.3", "{ .reg .b128 %q, %s, %t; mov.b128 %s, {%rd2,%rd3}; mov.b128 %t, {%rd4,%rd5}; atom.global.cas.b128 %q, [%rd0], %s, %t; mov.b128 {%rd20,%rd21}, %q; }", "ATOMG.*128|ATOM.*128", "rd20 rd21"),
    ("st.bulk", "8.6", "st.bulk.weak.shared::cta [%rd2], 512, 0;", "UMEMSETS", ""),
)  # fmt: skip

PROBES: tuple[InstructionProbe, ...] = (
    *_MMA,
    *(
        InstructionProbe(
            "matrix", name, version, code.replace("{D4}", vector("r", 20, 4)), expected, _regs("r", 20, outputs)
        )
        for name, version, code, expected, outputs in _MATRIX
    ),
    *_WGMMA,
    *_TCGEN05,
    *(InstructionProbe("copy", *row) for row in _COPIES),
    *(InstructionProbe("TMA", *row) for row in _TMA),
    *(InstructionProbe("cluster", *row) for row in _CLUSTER),
    *(InstructionProbe("warp and sync", *row) for row in _SYNC),
    *(InstructionProbe("arithmetic", *row) for row in _MATH),
    *(InstructionProbe("cvt", *row) for row in _CONVERT),
    *(InstructionProbe("memory", *row) for row in _MEMORY),
)
