"""Device code of the probes. verify/hardware_probes.py explains their purpose and the meaning of their results."""

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Int64
from cutlass.memory import SmemAllocator

from ...config import PANEL_BYTES, Config
from .. import inline_ptx as ptx
from ..attention import policy_of
from ..mma_fp8 import Mma8
from .config import BANK_LOADS, BANK_WARPS, CHAINS, ORDERS, PATHS, ROW_BYTES, ProbeConfig

WARP = 32
TILE_BYTES = WARP * PANEL_BYTES


class ProbeKernel:
    """The kernel of one ProbeConfig. It computes the words of `target` from the words of `source`."""

    def __init__(self, config: ProbeConfig):
        self.config = config
        kernels = {"lane map": self.lane_map, "mma": self.mma, "banks": self.banks}
        self.body = kernels[config.what]
        self.threads = WARP * (BANK_WARPS if config.what == "banks" else 1)

    @cute.jit
    def __call__(self, source, target, blocks: Int32, stream):
        type(self).kernel.set_name_prefix(self.config.name, remove_cutlass_symbol=True, keep_mangled_name=False)
        self.kernel(source, target).launch(grid=(blocks, 1, 1), block=(self.threads, 1, 1), stream=stream)

    @cute.kernel
    def kernel(self, source: cute.Tensor, target: cute.Tensor):
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        self.body(source.iterator.toint(), target.iterator.toint(), thread, block)

    # --- which bytes a lane gets of V ---

    def lane_map(self, source, target, lane, block):
        """Load 32 rows of 16 bytes, one per lane, by each of PATHS. Result: four registers of each lane per path."""
        base = SmemAllocator().allocate(WARP * ROW_BYTES, 128).toint()
        for i, word in enumerate(ptx.load_if(source + Int64(lane * ROW_BYTES), lane < WARP, 4)):
            ptx.store_shared_4_if(base + lane * ROW_BYTES + 4 * i, lane < WARP, word)
        cute.arch.sync_threads()
        for i, path in enumerate(PATHS):
            policy = policy_of(Config(arch=self.config.arch, dtype="e4m3", out_dtype="fp32", fp8_mma=path))
            words = policy.load_v(base + lane * ROW_BYTES, 0)
            ptx.store_16(target + Int64((i * WARP + lane) * 16), words)

    # --- one product ---

    def mma(self, source, target, lane, block):
        """Multiply A and B from six registers of each lane. Result: four floats of each lane for each kind of MMA."""
        at = source + Int64((block * WARP + lane) * 32)
        a, b = ptx.load_if(at, lane < WARP, 4), ptx.load_if(at + Int64(16), lane < WARP, 4)[:2]
        for i, block_scaled in enumerate(self.config.scalings):
            d = ptx.mma_m16n8k32(self.config.dtype, a, b, None, ptx.UNIT_SCALES if block_scaled else None)
            out = ((block * len(self.config.scalings) + i) * WARP + lane) * 16
            ptx.store_16(target + Int64(out), [ptx.bits(x) for x in d])

    # --- bank conflicts ---

    @cute.jit
    def banks(self, source, target, thread, block):
        """For each order of rows measure the clocks in which a warp makes BANK_LOADS loads in each of CHAINS chains."""
        lane = thread % WARP
        base = SmemAllocator().allocate(CHAINS * TILE_BYTES, 1024).toint()
        for i in cutlass.range_constexpr(CHAINS * TILE_BYTES // (4 * WARP * BANK_WARPS)):
            ptx.store_shared_4_if(base + (i * WARP * BANK_WARPS + thread) * 4, thread >= 0, Int32(0))
        for i in cutlass.range_constexpr(len(ORDERS)):
            offset = self.offset_of(ORDERS[i], lane)
            byte_wise = ORDERS[i].startswith("V") and self.config.byte_wise
            a, b = base + offset, base + offset + TILE_BYTES
            c, d = a + 2 * TILE_BYTES, b + 2 * TILE_BYTES
            cute.arch.sync_threads()
            start = ptx.clock()
            for _ in cutlass.range(BANK_LOADS, unroll=4):
                # The next address depends on the bytes of this load. All are 0, but the compiler does not know this.
                a = a + self.any_bit(a, byte_wise)
                b = b + self.any_bit(b, byte_wise)
                c = c + self.any_bit(c, byte_wise)
                d = d + self.any_bit(d, byte_wise)
            cute.arch.sync_threads()
            end = ptx.clock()
            out = target + Int64(((2 * i) * WARP * BANK_WARPS + thread) * 4)
            ptx.store_4(out, end - start)
            ptx.store_4(out + Int64(4 * WARP * BANK_WARPS), a ^ b ^ c ^ d)  # so that the loads are not removed

    def any_bit(self, address, byte_wise: bool):
        words = ptx.ldmatrix_bytes(address, 0) if byte_wise else ptx.ldmatrix(address, 0)
        return words[0] | words[1] | words[2] | words[3]

    def offset_of(self, order: str, lane):
        """Compute a lane's byte offset with the MMA policy of the FP8 kernels, with or without its rotation of rows."""
        if order == "eight ways":  # no swizzle: eight lanes in the same banks
            return lane * PANEL_BYTES
        tensor, head_dim, rows = order.split()
        config = Config(arch=self.config.arch, dtype="e4m3", out_dtype="fp32", head_dim=int(head_dim[1:]))
        _, k, v = (Mma8 if rows == "turned" else Straight)(config).lane_offsets(lane)
        return (k if tensor == "K" else v)[0]


class Straight(Mma8):
    """Mma8 without the rotation by four rows in odd blocks of eight keys."""

    def k_row(self, lane):
        return (lane & 7) + ((lane >> 4) << 3)

    def v_row(self, lane):
        return super().v_row(lane) ^ (((lane >> 1) & 1) << 2)
