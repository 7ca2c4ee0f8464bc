"""A decoder refuses every modifier that it does not use.

Instructions of the kernels in h100.jsonl.xz get one modifier more, which others of their kind have. What comes
out has to be refused, or to compute something else: on special values, and on addresses.
"""

from __future__ import annotations

import os
import random
import re
from collections import defaultdict
from dataclasses import replace
from itertools import product

import pytest

np = pytest.importorskip("numpy")

from h100 import code_of, kernels  # noqa: E402

from tritonhook.emulate.errors import Fault, Hang  # noqa: E402
from tritonhook.emulate.machine import Code, Geometry, Instruction, Machine  # noqa: E402
from tritonhook.emulate.memory import GLOBAL_BASE, Memory  # noqa: E402
from tritonhook.emulate.ptx import decode as ptx  # noqa: E402
from tritonhook.emulate.ptx.kernel import read_kernel  # noqa: E402
from tritonhook.emulate.ptx.site import OPCODES as PTX_OPCODES  # noqa: E402
from tritonhook.emulate.ptx.site import Site, known_name  # noqa: E402
from tritonhook.emulate.sass import decode as sass  # noqa: E402
from tritonhook.emulate.sass.site import OPCODES as SASS_OPCODES  # noqa: E402
from tritonhook.emulate.sass.site import Site as SassSite  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402
from tritonhook.ptx.module import Ptx  # noqa: E402

THREADS = 128
FEW = {"ptx": 260, "sass": 120} if "NIGHTLY" in os.environ else {"ptx": 100, "sass": 50}  # opcodes
LIVE = np.arange(THREADS) % 5 != 3
WORDS = [
    0, 1, 2, 31, 33, 0xFF, 0x8000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678, 0x3F800000, 0xBF800000, 0x7F800000,
    0x7FC00001, 0x7F800001, 0x00000001, 0x807FFFFF, 0x00800000, 0x3F000001, 0x4EFFFFFF, 0x477FE001, 0xC0490FDB,
    0x7C00FC00, 0x7E010001, 0x80010001, 0x3C00BC00, 0x7BFF0400, 0x7FF77FF7, 0x7FF70001, 0x3FF00000, 0x00123456,
    0x3C003801, 0xFC017C01, 0x3FF80000, 0x37F00000, 0xC0040000, 0x40590000,
]  # fmt: skip
# Who sees an access when, where it is cached, which threads come, a rounding or a kind that is the default; what an
# instruction does anyhow: conversions to integers saturate, and those to f16 flush nothing.
FREE = {
    "ptx": {
        *(
            "cta",
            "cluster",
            "gpu",
            "sys",
            "acquire",
            "release",
            "acq_rel",
            "relaxed",
            "weak",
            "volatile",
            "mmio",
            "unified",
            "ca",
            "cg",
            "cs",
            "cv",
            "lu",
            "nc",
            "wb",
            "wt",
        ),
        *("L1::no_allocate", "sync", "aligned", "global", "shared", "shared::cta", "uni", "b32", "pred", "rn", "to"),
        *(
            ("cvt", "sat"),
            ("sin", "ftz"),
            ("cvt", "ftz"),
            ("ld", "param"),
            ("ld", "const"),
            ("st", "param"),
            ("mapa", "shared::cluster"),
        ),
    },
    "sass": {
        *("E", "STRONG", "CTA", "GPU", "SYS", "SM", "CONSTANT", "LU", "NA", "MMA", "U32", "S32", "RN", "NTZ", "LUT"),
        *(
            "AND",
            "BYPASS",
            "DEFER_BLOCKING",
            "PAND",
            "EF",
            "EL",
            "EU",
            "IL",
            "CI",
            "CV",
            "PRIVATE",
            "MMIO",
            "WEAK",
            "32",
        ),
        *(
            "LTC64B",
            "LTC128B",
            "LTC256B",
            "SPILL",
            "RELIABLE",
            "RECONVERGENT",
            ("BMSK", "C"),
            ("FCHK", "DIVIDE"),
            ("F2I", "F32"),
            ("I2F", "F32"),
        ),
        *(
            ("IMMA", "SAT"),
            ("LDGSTS", "ZFILL"),
            ("F2I", "ROUND"),
            ("FRND", "ROUND"),
            ("F2IP", "ROUND"),
            *(("BMOV", "PQUAD"), ("R2UR", "BROADCAST"), ("R2UR", "FILL"), ("FRND", "F32"), ("FRND", "FTZ")),
            *(("SHF.R.U32.HI", "W"), ("FSETP.GEU.AND", "FTZ")),
            ("FFMA.RP.SAT", "FTZ"),
            ("HFMA2", "OOB"),
            ("STSM", "1"),
            ("STSM", "4"),
        ),  # nothing here is that large
        *(("IMAD", "MOV"), ("IMAD", "SHL"), ("IMAD", "IADD"), ("F2I", "FTZ")),
        *(("I2F", "RZ"), ("I2F", "RM"), ("I2F", "RP"), ("FSETP.NAN.AND", "FTZ")),
    },
}


class Bench:
    """One decoder with 32 threads. registers: all of its rows, by a key. addresses: which of them can be addresses."""

    def __init__(self, form, kernel, item):
        self.form, self.item = form, item
        self.memory = Memory(1 << 16, 1 << 12)
        self.table = self.memory.allocate(1 << 12)
        parameters = self.memory.allocate(1 << 12)
        self.machine = Machine(Geometry((1, 1, 1), (THREADS, 1, 1), (0,)), self.memory)
        if form == "ptx":
            self.decoder = ptx.Decoder(
                kernel, self.machine, parameters, {v.name: self.table for v in kernel.module}, 0, 0
            )
            self.decoder.code()
            self.decoder.function, self.decoder.files = kernel.function, self.decoder._new_files(kernel.function)
        else:
            self.decoder = sass.Decoder(
                kernel, self.machine, kernel.constants(self.machine.geometry, bytes(range(0x81, 0xF1)) * 5)
            )
            for is_uniform, number in product((False, True), range(64)):
                self.decoder.row(is_uniform, number)
                self.decoder.flag(is_uniform, number % 7)

    def step(self, opcode):
        if self.form == "ptx":
            site = Site(self.decoder, replace(self.item, opcode=opcode), 1)
            return PTX_OPCODES.step(site.name, site)
        return self.decoder.instruction(self.item[0]._replace(opcode=opcode, predicate=""), self.item[1]).step

    def rows(self):
        decoder = self.decoder
        if self.form == "ptx":
            return [*decoder.files.values(), decoder.carry]
        return [*decoder._rows.values(), *decoder._flags.values(), decoder.convergence]

    def fill(self, addresses):
        """Special values, or addresses of global and of shared memory."""
        draw, at = np.random.default_rng(1), GLOBAL_BASE + self.table.begin
        for row in self.rows():
            if row.dtype == np.bool_:
                row[:] = draw.integers(0, 2, row.shape)
            elif not addresses:
                parts = row.view(np.uint32 if row.dtype.itemsize > 4 else row.dtype)
                words = draw.integers(0, 1 << 32, parts.shape, dtype=np.uint32)
                near_1 = 0x3E00_0000 + (words & np.uint32(0x01FF_FFFF))  # of f32 and f64
                words = np.where(draw.random(parts.shape) < 0.5, words, near_1)
                parts[:] = np.where(
                    draw.random(parts.shape) < 0.5, draw.choice(np.array(WORDS, np.uint32), parts.shape), words
                )
                for part in parts.reshape(-1, parts.shape[-1]):  # each of them in a thread that runs
                    lanes = np.flatnonzero(np.repeat(LIVE, len(part) // THREADS))[: len(WORDS)]
                    part[lanes] = draw.permutation(np.array(WORDS, np.uint32))
            elif row.dtype == np.uint64:
                row[:] = at + draw.integers(0, 16, row.shape).astype(np.uint64) * np.uint64(16)
            else:
                row[:] = 1024 + draw.integers(0, 16, row.shape) * 16
        if self.form == "sass" and addresses:
            for (is_uniform, number), row in self.decoder._rows.items():
                lane = 32 if is_uniform else 16 * (np.arange(THREADS) % 16)
                row[:] = at >> 32 if number % 2 else (at & 0xFFFF_FFFF) + lane

    def outcome(self, step, addresses):
        """All that a step has changed; None where it is refused or has a fault."""
        self.fill(addresses)
        draw, machine = np.random.default_rng(2), self.machine
        for store in (self.memory.global_, self.memory.shared, self.memory.local):
            store.data[:] = draw.integers(0, 255, store.data.shape)
        machine.random, machine.copies._waiting, machine.shared_barriers.all = np.random.default_rng(0), [], {}
        machine.live[:], machine.steps_left = LIVE, 100
        try:
            machine.run(Code([Instruction(step, "", 1), Instruction(lambda g: g.exit(), "", 2, True)], frozenset()))
        except (Fault, NotUnderstood, Hang):
            return None
        copies = [(one.index.tolist(), one.values.tolist()) for one in machine.copies._waiting]
        memory = [store.data.tobytes() for store in (self.memory.global_, self.memory.shared, self.memory.local)]
        return [row.tobytes() for row in self.rows()], memory, copies

    def outcomes(self, opcode):
        step = self.step(opcode)
        return [self.outcome(step, addresses) for addresses in (False, True)]


def differ(operands):
    """Whether no register is named twice: a sum of a number with itself is exact, whatever the rounding. One without a
    register gives a number of its own."""
    names = re.findall(r"%\w+|\bU?R\d+", operands)
    alone = "RZ" in operands or ("c[" in operands and not re.search(r"c\[0x0\]\[0x2\w\w\]", operands))
    return len(set(names)) == len(names) and (len(names) > 1 or not alone)


def instructions(form):
    """By opcode with its modifiers, at most three instructions, each with its kernel."""
    found = defaultdict(list)
    for one in kernels().values():
        if form == "ptx":
            kernel = read_kernel(Ptx(one["ptx"]))
            for item in kernel.function.items:
                name = known_name(item.opcode)
                if name and name not in PTX_OPCODES.moves and differ(" ".join(item.operands)):
                    found[item.opcode].append((kernel, item))
        else:
            kernel = code_of(one)
            for item in zip(kernel.sass.instructions, kernel.immediates, strict=True):
                base = item[0].opcode.partition(".")[0]
                adds_zero = base in ("DADD", "FADD", "FFMA") and "RZ" in item[0].operands
                if base in SASS_OPCODES and base not in SASS_OPCODES.moves and differ(item[0].operands) > adds_zero:
                    found[item[0].opcode].append((kernel, item))
    draw = random.Random(1)
    return {
        opcode: draw.sample(found[opcode], min(3, len(found[opcode])))
        for opcode in draw.sample(sorted(found), FEW[form])
    }


def accepted(monkeypatch, form):
    """By base, the modifiers that its decoder takes: filled while instructions are decoded."""
    found, site = defaultdict(set), Site if form == "ptx" else SassSite
    known = site.known

    def noted(self, *modifiers):
        found[(self.item if form == "ptx" else self.one).opcode.partition(".")[0]].update(modifiers)
        return known(self, *modifiers)

    monkeypatch.setattr(site, "known", noted)
    return found


def variants(opcode, others):
    """The opcode with one modifier more, and which one."""
    base, *modifiers = opcode.split(".")
    name = known_name(opcode) or base
    for one in others - set(modifiers):
        yield one, f"{name}.{one}{opcode[len(name) :]}"


@pytest.mark.parametrize("form", ["ptx", "sass"])
def test_a_modifier_changes_what_an_instruction_does_or_is_refused(form, monkeypatch):
    found, of_base, same = instructions(form), accepted(monkeypatch, form), []
    for opcode, several in found.items():
        base, benches = opcode.partition(".")[0], [Bench(form, *one) for one in several]
        try:
            wanted = [bench.outcomes(opcode) for bench in benches]
        except NotUnderstood:
            continue
        nothing = [[bench.outcome(lambda g: None, addresses) for addresses in (False, True)] for bench in benches]
        if wanted == nothing:
            continue  # it orders accesses
        for modifier, changed in variants(opcode, {*of_base[base]}):
            if FREE[form] & {modifier, (base, modifier), (opcode, modifier)}:
                continue
            try:
                outcomes = [bench.outcomes(changed) for bench in benches]
            except NotUnderstood:
                continue
            if outcomes == wanted and any(one != [None, None] for one in outcomes):
                same.append((opcode, changed))
    assert not same
