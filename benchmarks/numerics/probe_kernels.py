"""Kernels of one instruction each, in PTX: words of a register file in, words out. They run wherever a GPU is."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

THREADS = 128  # of a block: a warpgroup


@dataclass(frozen=True)
class Probe:
    """body: PTX that computes o0, o1, ... from i0, i1, ... (32 bits each). tile: bytes of shared memory that each block
    fills from a third array first, from the address `base` on."""

    body: str
    words_in: int
    words_out: int
    tile: int = 0


def ptx(probe: Probe, target: str = "sm_90a") -> str:
    loads = "\n".join(f"  ld.global.b32 i{n}, [from]; add.u64 from, from, step;" for n in range(probe.words_in))
    stores = "\n".join(f"  st.global.b32 [to], o{n}; add.u64 to, to, step;" for n in range(probe.words_out))
    return f"""
.version 8.4
.target {target}
.address_size 64
.visible .entry probe(.param .u64 given, .param .u64 found, .param .u32 count, .param .u64 tiles)
{{
  .reg .b32 i<{max(probe.words_in, 1)}>, o<{probe.words_out}>, h<16>, n, b, at, base, total;
  .reg .b64 from, to, step, x, y, z, r, da, db, tilefrom;
  .reg .b16 s<8>;
  .reg .pred p, q;
  {f".shared .align 1024 .b8 tile[{probe.tile}];" if probe.tile else ""}
  mov.u32 b, %ctaid.x;
  mov.u32 at, %tid.x;
  mad.lo.u32 n, b, {THREADS}, at;
  ld.param.u32 total, [count];
  setp.ge.u32 p, n, total;
  @p ret;
  mul.wide.u32 step, total, 4;
  ld.param.u64 from, [given];
  ld.param.u64 to, [found];
  mad.wide.u32 from, n, 4, from;
  mad.wide.u32 to, n, 4, to;
{_fill(probe.tile) if probe.tile else ""}
{loads}
  {probe.body}
{stores}
  ret;
}}
"""


def _fill(size: int) -> str:
    """Copy the block's tile to shared memory, 4 bytes per thread and step."""
    return f"""
  mov.u32 base, tile;
  ld.param.u64 tilefrom, [tiles];
  mad.wide.u32 tilefrom, b, {size}, tilefrom;
  mad.wide.u32 tilefrom, at, 4, tilefrom;
  mad.lo.u32 h0, at, 4, base;
  mov.u32 h1, 0;
copy:
  ld.global.b32 h2, [tilefrom];
  st.shared.b32 [h0], h2;
  add.u64 tilefrom, tilefrom, {4 * THREADS};
  add.u32 h0, h0, {4 * THREADS};
  add.u32 h1, h1, {4 * THREADS};
  setp.lt.u32 q, h1, {size};
  @q bra copy;
  fence.proxy.async;
  bar.sync 0;
"""


def listed(prefix: str, first: int, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{n}" for n in range(first, first + count)) + "}"


def mma(shape: str, types: str, a: int, b: int, c: int) -> Probe:
    """mma.sync; a, b, c: words of each operand. types: of d, a, b, c."""
    body = (
        f"mma.sync.aligned.{shape}.row.col.{types} "
        f"{listed('o', 0, c)}, {listed('i', 0, a)}, {listed('i', a, b)}, {listed('i', a + b, c)};"
    )
    return Probe(body, a + b + c, c)


def wgmma(n: int, k: int, types: str, words: int, tile: int, fixed: tuple[int, int], tail: str, a_words: int) -> Probe:
    """wgmma.mma_async. words: of the accumulator. fixed: the descriptors of A and B without their address. a_words: 4
    if A comes from registers, so that B lies at the tile's begin; else 0, and B lies behind half of it."""
    moves = " ".join(f"mov.b32 o{i}, i{a_words + i};" for i in range(words))
    a_operand = listed("i", 0, 4) if a_words else "da"
    body = f"""
  {moves}
  shr.u32 h0, base, 4;
  cvt.u64.u32 da, h0;
  add.u64 da, da, {fixed[0]};
  add.u32 h0, h0, {(0 if a_words else tile // 2) >> 4};
  cvt.u64.u32 db, h0;
  add.u64 db, db, {fixed[1]};
  setp.eq.u32 q, 0, 0;
  wgmma.fence.sync.aligned;
  wgmma.mma_async.sync.aligned.m64n{n}k{k}.{types} {listed("o", 0, words)}, {a_operand}, db, q{tail};
  wgmma.commit_group.sync.aligned;
  wgmma.wait_group.sync.aligned 0;
"""
    return Probe(body, a_words + words, words, tile)


class Gpu:
    """Runs probes. Memory is taken once for each call."""

    def __init__(self) -> None:
        from tritonhook.device.cuda_driver import Driver

        self.driver = Driver()
        self.driver.init()
        if not self.driver.has_context():
            self.driver.create_context(self.driver.device(0))
        self.name = self.driver.name(self.driver.device(0))

    def run(self, probe: Probe, given: np.ndarray, tiles: np.ndarray | None = None) -> np.ndarray:
        """given: uint32 (words, threads). tiles: uint8 (blocks, bytes). Gives uint32 (words, threads)."""
        module = self.driver.load(ptx(probe).encode() + b"\0")
        threads = given.shape[1]
        size = 4 * threads * probe.words_out
        sources = [np.ascontiguousarray(given), np.zeros(4, np.uint8) if tiles is None else np.ascontiguousarray(tiles)]
        places = [self.driver.allocate(max(one.nbytes, 16)) for one in sources]
        found = self.driver.allocate(size)
        try:
            for place, one in zip(places, sources, strict=True):
                self.driver.write(place, one.tobytes())
            arguments = (
                *(ctypes.c_uint64(places[0]), ctypes.c_uint64(found)),
                *(ctypes.c_uint32(threads), ctypes.c_uint64(places[1])),
            )
            function = self.driver.function(module, "probe")
            self.driver.launch(function, arguments, grid=-(-threads // THREADS), block=THREADS)
            self.driver.synchronize()
            data = self.driver.read(found, size)
        finally:
            for place in (*places, found):
                self.driver.free(place)
            self.driver.unload(module)
        return np.frombuffer(data, np.uint32).reshape(probe.words_out, threads)
