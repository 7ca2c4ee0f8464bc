"""Machine code on the CPU: single instructions, control flow, warps; and ptxas's known bugs."""

from __future__ import annotations

from struct import pack, unpack

import pytest

np = pytest.importorskip("numpy")

from tritonhook.cubin.sass import INSTRUCTION_BYTES, Instruction, Sass  # noqa: E402
from tritonhook.emulate.errors import Fault  # noqa: E402
from tritonhook.emulate.machine import Geometry, Machine  # noqa: E402
from tritonhook.emulate.memory import Memory  # noqa: E402
from tritonhook.emulate.sass.decode import decode  # noqa: E402
from tritonhook.emulate.sass.kernel import SassKernel  # noqa: E402
from tritonhook.errors import NotUnderstood  # noqa: E402

Line = tuple[str, str, str]


def run(lines, threads=1, arch=90, size=4, immediates=None, shared=4096, stack=0, garbage=0, banks=None):
    """Execute lines of one CTA; give the buffer that the only parameter points to. immediates: by number of a line."""
    lines = [*lines, ("", "EXIT", "")]
    code = tuple(
        Instruction(number * INSTRUCTION_BYTES, predicate, opcode, operands, 0)
        for number, (predicate, opcode, operands) in enumerate(lines)
    )
    given = tuple((immediates or {}).get(number, 0) for number in range(len(lines)))
    kernel = SassKernel(Sass("k", code), arch, given, stack, shared, banks or {})
    memory = Memory(shared, stack)
    out = memory.allocate(bytes(size))
    machine = Machine(Geometry((1, 1, 1), (threads, 1, 1), (0,)), memory)
    constants = kernel.constants(machine.geometry, out.address.to_bytes(8, "little"))
    decoded, unknown = decode(kernel, machine, constants, garbage)
    if unknown:
        raise unknown[0]
    machine.run(decoded)
    return memory.contents(out)


REGISTERS = {"R2": 5, "R3": 7, "R9": 0x8000, "R10": 0x3F800000, "R11": 0}
START: list[Line] = [("", "MOV", f"{name},{number:#x}") for name, number in REGISTERS.items()]
STORE: list[Line] = [("", "LDC.64", "R4,c[0x0][0x210]"), ("", "STG.E", "desc[UR4][R4.64],R7")]


@pytest.mark.parametrize(
    ("code", "stored"),
    [
        ([("", "IADD3", "R6,P0,R2,-R3,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x40),  # 5 - 7 borrows
        ([("", "IADD3", "R6,P0,R3,-R2,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),
        ([("", "IADD3", "R6,P0,R2,-R11,RZ"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # 5 - 0 does not
        ([("", "LEA", "RZ,P0,-R11,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # executed
        ([("", "LEA", "RZ,P0,-R2,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),
        ([("", "LEA", "RZ,P0,-R2,0x50,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x41),  # 80 - 80
        ([("", "LEA", "RZ,P0,-R9,0xcd5,0x4"), ("", "IADD3.X", "R7,RZ,0x40,RZ,P0,!PT")], 0x40),  # borrows
        ([("", "MOV", "R8,0x38b8"), ("", "F2FP.F16.E4M3.UNPACK_B", "R7,R8")], 0x3C00BC00),  # 1 and -1
        ([("", "MOV", "R8,0x38380000"), ("", "F2FP.F16.E4M3.UNPACK_B", "R7,R8.H1")], 0x3C003C00),
        ([("", "FADD", "R7,R10,R10")], 0x40000000),
        ([("", "FADD", "R7,-R10,|R10|")], 0),
        (  # the upper numbers of two pairs: 1 - 3
            [
                ("", "MOV", "R13,0x40400000"),
                ("", "MOV", "R15,0x3f800000"),
                ("", "FADD2", "R6,R14.F32x2.HI_LO,-R12.F32x2.HI_LO"),
            ],
            0xC0000000,
        ),
        (  # the numbers of a pair change places: the upper one is 1 + 1
            [("", "MOV", "R12,0x3f800000"), ("", "MOV", "R13,0x40400000"), ("", "FADD2", "R6,R12.F32x2.LO_HI,R10.F32")],
            0x40000000,
        ),
        (  # one number for both of a pair: 3 - 1
            [("", "MOV", "R13,0x40400000"), ("", "FADD2", "R6,R12.F32x2.HI_LO,-R10.F32")],
            0x40000000,
        ),
        ([("", "LOP3.LUT", "R7,R2,0x3,RZ,0x3c,!PT")], 5 ^ 3),
        ([("", "LOP3.LUT", "P0,RZ,R2,0x2,RZ,0xc0,!PT"), ("@P0", "MOV", "R2,0x9"), ("", "MOV", "R7,R2")], 5),
        ([("", "LOP3.LUT.PAND", "P0,RZ,R2,0x1,RZ,0xc0,!PT"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "LOP3.LUT.PAND", "P0,RZ,R2,0x1,RZ,0xc0,PT"), ("", "SEL", "R7,R2,R3,P0")], 5),
        ([("", "LOP3.LUT.PAND", "P0,RZ,R2,0x2,RZ,0xc0,PT"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "LOP3.LUT", "P0,RZ,R2,0x2,RZ,0xc0,PT"), ("", "SEL", "R7,R2,R3,P0")], 5),
        ([("", "IADD3", "R6,P0,R3,-R2,RZ"), ("", "IMAD.X", "R7,R2,R3,RZ,P0")], 36),  # 7 - 5 carries
        ([("", "IADD3", "R6,P0,R2,-R3,RZ"), ("", "IMAD.X", "R7,R2,R3,RZ,P0")], 35),
        ([("", "IADD3", "R6,P0,R2,-R3,RZ"), ("", "IMAD.X", "R7,R2,R3,RZ,!P0")], 36),
        ([("", "PLOP3.LUT", "P0,PT,PT,PT,PT,0x8,0x0"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "SHF.L.W.U32.HI", "R7,R2,0x1,R3")], 14),
        ([("", "SHF.R.S32.HI", "R7,RZ,0x1,-0x8")], -4),
        ([("", "SHF.R.U32.HI", "R7,RZ,0x28,R3")], 0),
        ([("", "SHF.R.U32.HI", "R7,RZ,0x28,R9")], 0),
        ([("", "SHF.R.W.U32.HI", "R7,RZ,0x28,R9")], 0x80),
        ([("", "SHF.L.U64.HI", "R7,R9,0x11,R2")], (5 << 17 | 1) & 0xFFFFFFFF),
        ([("", "PRMT", "R7,R9,0x9910,RZ")], -0x8000),
        ([("", "IMAD.WIDE.U32", "R6,R10,R9,RZ")], 0x1FC0),
        ([("", "IMAD.WIDE", "R6,-R2,R3,RZ")], -1),
        ([("", "IMAD.HI.U32", "R7,R10,R9,RZ")], 0x1FC0),
        ([("", "VIMNMX3", "R7,R2,R3,-0x1,!PT")], 7),
        ([("", "VIMNMX.S16x2", "R7,R9,R2,PT")], -0x8000 & 0xFFFF),
        ([("", "VIADD.16x2", "R7,R9,0x8001")], 1),
        ([("", "MOV", "R8,0x80000000"), ("", "VIADD.S32.ISAT", "R7,R3,-R8")], 0x7FFFFFFF),
        ([("", "VIADD.S32.ISAT", "R7,-R3,0x80000000")], -(1 << 31)),
        ([("", "MOV.64", "R6,0xf149f2ca00000007")], 0xF149F2CA),
        ([("", "MOV.64", "R6,-0x9")], -1),
        ([("", "MOV", "R8,-0x81"), ("", "I2I.S8.S32.SAT", "R7,R8")], -0x80),
        ([("", "MOV", "R8,-0x81"), ("", "I2I.U16.S32.SAT", "R7,R8")], 0),
        ([("", "MOV", "R8,-0x81"), ("", "I2IP.S8.S32.SAT", "R7,R8,R2,R3")], 0x78005),
        ([("", "MOV", "R8,-0x81"), ("", "I2IP.U8.S32.SAT", "R7,R8,R2,R3")], 0x70005),
        ([("", "I2IP.U4.S32.SAT", "R7,R2,R9,R3.24")], 0x75F),
        ([("", "MOV", "R8,0x12340000"), ("", "I2IP.U8.S32.SAT", "R7,R2,R3,R8.H1")], 0x12340507),
        ([("", "MOV", "R8,0xbc00"), ("", "F2I.F16.NTZ", "R7,-R8")], 1),
        ([("", "MOV", "R8,0xbc00"), ("", "F2I.U32.F16.NTZ", "R7,|R8|")], 1),
        ([("", "MOV", "R8,0x40003c00"), ("", "HADD2", "R7,R8.H0_NH1,-RZ.H0_H0")], 0x3C00C000),
        ([("", "I2IP.S16.S32.SAT", "R7,R2,R9,RZ")], 0x57FFF),
        ([("", "MOV", "R8,-0x1"), ("", "VABSDIFF", "R7,R8,R2,R3")], 13),
        ([("", "MOV", "R8,-0x1"), ("", "VABSDIFF.U32", "R7,R8,R2,R3")], 0xFFFFFFFA + 7 - (1 << 32)),
        ([("", "MOV", "R8,0x1ff0203"), ("", "IDP.4A.S8.U8", "R7,R8,R8,R2")], 1 - 255 + 4 + 9 + 5),
        ([("", "MOV", "R8,0xfffe0003"), ("", "IDP.2A.HI.S16.S8", "R7,R8,R8,R2")], 3 * -2 + -2 * -1 + 5),
        ([("", "MOV", "R8,-0x1"), ("", "PLOP3.LUT", "P0,PT,R8.SIGN,PT,PT,0x80,0x8"), ("", "SEL", "R7,R2,R3,P0")], 5),
        ([("", "IMNMX.S64", "PT,PT,R6,R2,-0x9,PT,!PT")], -1),  # the upper half of -9
        ([("", "IMNMX.U64", "PT,PT,R6,R2,-0x9,PT,!PT")], 7),
        ([("", "IMNMX.S64", "PT,PT,R6,R2,-0x9,!PT,!PT")], 7),
        ([("", "MOV", "R8,0xbf000000"), ("", "FMNMX.XORSIGN", "R7,|R10|,|R8|,PT")], 0xBF000000),  # 1 and -0.5
        (
            [("", "STS", "[RZ+0x10],R2"), ("", "ATOMS.POPC.INC.32", "RZ,[URZ+0x10]"), ("", "LDS", "R7,[RZ+0x10]")],
            6,
        ),
        ([("", "MOV", "R8,0x3c00c000"), ("", "VHMNMX", "R7,|R8|.H0_H0,R8.H1_H1,RZ.H0_H0,!PT")], 0x40004000),
        ([("", "LEA.HI", "R7,R9,R2,RZ,0x1")], 5),
        ([("", "LEA.HI.X.SX32", "R7,R9,R2,0x1,PT")], 6),
        ([("", "ISETP.GT.U32.AND", "P0,PT,RZ,-0x1,PT"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "ISETP.GE.AND.EX", "P0,PT,R2,0x5,PT,!PT"), ("", "SEL", "R7,R2,R3,P0")], 7),
        ([("", "FLO.U32", "R7,R2")], 2),
        ([("", "FLO.U32.SH", "R7,R2")], 29),
        ([("", "SGXT", "R7,R3,0x3")], -1),
        ([("", "BMSK", "R7,R2,0x3")], 0xE0),
        ([("", "POPC", "R7,R3")], 3),
        ([("", "BREV", "R7,R2")], 0xA0000000),
        ([("", "IABS", "R7,-R2")], 5),
        ([("", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", "R7,R10,RZ,R3")], 0x73800),
        ([("", "F2FP.BF16.F32.PACK_AB", "R7,R10,RZ")], 0x3F800000),
        ([("", "I2FP.F32.S32", "R7,-R2")], unpack("<I", pack("<f", -5))[0]),
        ([("", "I2F.U64.RP", "R7,0x100")], 0x53800000),  # executed: 2^40, of which the immediate is the upper word
        ([("", "I2F.U64.RP", "R7,R2.64")], 0x50E00001),  # 5 + 7 * 2^32, rounded up
        ([("", "F2I.FTZ.U32.TRUNC.NTZ", "R7,R10")], 1),
        ([("", "HADD2.F32", "R7,-RZ,R10.H1_H1")], 0x3FF00000),
        ([("", "MOV", "R12,0xfe01"), ("", "F2F.F64.F16", "R6,-R12")], 0xFFF80400),  # executed: a NaN keeps its sign
        ([("", "FSETP.GEU.AND", "P0,PT,R10,RZ,PT"), ("", "P2R", "R7,RZ,0x1")], 1),
        ([("", "MOV", "R6,0x100"), ("", "R2P", "PR,R6.B1,0x7f"), ("", "P2R", "R7,PR,RZ,0x7f")], 1),
        ([("", "STS", "[RZ+0x10],R2"), ("", "LDS.U8", "R7,[RZ+0x10]")], 5),
        ([("", "UMOV", "UR6,0x9"), ("", "IADD3", "R7,R2,UR6,RZ")], 14),
        ([("", "S2R", "R7,SR_LMEMHIOFF"), ("", "DEPBAR.LE", "SB3,0x0")], 0),
    ],
)
def test_instructions(code, stored):
    assert run([*START, *code, *STORE]) == pack("<I", stored & 0xFFFF_FFFF)


WORDS = [0x8A8180FF, 0x01020304, 0x7FFFFFFF, 0xFFFF8001]
BEFORE: list[Line] = [
    *(("", "MOV", f"R{12 + number},{word:#x}") for number, word in enumerate(WORDS)),
    *(("", "MOV", f"R{number},RZ") for number in (8, 9, 10, 11)),
    *(("", "MOV", f"R{number},{number:#x}") for number in (2, 3)),
    ("", "LDC.64", "R4,c[0x0][0x210]"),
]
AFTER: list[Line] = [("", "STG.E.128", "desc[UR4][R4.64],R8")]
PUT: Line = ("", "STS.128", "[RZ+0x20],R12")
BANK = bytes(range(0x78, 0x98))


@pytest.mark.parametrize(
    ("lines", "stored"),
    [
        # --- loads
        ([PUT, ("", "LDS", "R8,[RZ+0x24]")], [WORDS[1], 0, 0, 0]),
        ([PUT, ("", "LDS.64", "R8,[RZ+0x28]")], [*WORDS[2:], 0, 0]),
        ([PUT, ("", "LDS.128", "R8,[RZ+0x20]")], WORDS),
        ([PUT, ("", "LDS.U8", "R8,[RZ+0x21]"), ("", "LDS.S8", "R9,[RZ+0x21]")], [0x80, 0xFFFFFF80, 0, 0]),
        ([PUT, ("", "LDS.U16", "R8,[RZ+0x22]"), ("", "LDS.S16", "R9,[RZ+0x22]")], [0x8A81, 0xFFFF8A81, 0, 0]),
        ([PUT, ("", "LDS.S8", "R8,[RZ+0x24]"), ("", "LDS.S16", "R9,[RZ+0x24]")], [4, 0x304, 0, 0]),
        ([("", "STL.64", "[RZ+0x8],R12"), ("", "LDL", "R8,[RZ+0xc]")], [WORDS[1], 0, 0, 0]),
        ([("", "ST.E.64", "desc[UR4][R4.64+0x8],R12"), ("", "LD.E", "R8,desc[UR4][R4.64+0x8]")], [WORDS[0], 0, 0, 0]),
        ([("", "STG.E", "desc[UR4][R4.64],R13"), ("", "LDG.E.STRONG.GPU", "R9,desc[UR4][R4.64]")], [0, WORDS[1], 0, 0]),
        # --- stores
        ([("", "STS.U8", "[RZ+0x1],R13"), ("", "LDS.64", "R8,[RZ]")], [0x400, 0, 0, 0]),
        ([("", "STS.U16", "[RZ+0x2],R13"), ("", "LDS.64", "R8,[RZ]")], [0x3040000, 0, 0, 0]),
        ([("", "STS.64", "[RZ+0x8],R12"), ("", "LDS.128", "R8,[RZ]")], [0, 0, *WORDS[:2]]),
        # --- constants
        ([("", "LDC", "R8,c[0x3][0x8]"), ("", "LDC.64", "R10,c[0x3][0x10]")],
         [0x83828180, 0, 0x8B8A8988, 0x8F8E8D8C]),
        ([("", "LDC.U8", "R8,c[0x3][0x9]"), ("", "LDC.S8", "R9,c[0x3][0x9]"), ("", "LDC.S8", "R10,c[0x3][0x7]")],
         [0x81, 0xFFFFFF81, 0x7F, 0]),
        ([("", "LDC.U16", "R8,c[0x3][0xa]"), ("", "LDC.S16", "R9,c[0x3][0xa]"), ("", "LDC.S16", "R10,c[0x3][0x6]")],
         [0x8382, 0xFFFF8382, 0x7F7E, 0]),
        ([("", "MOV", "R2,0x4"), ("", "LDC", "R8,c[0x3][R2]"), ("", "LDC.64", "R10,c[0x3][R2+0x14]")],
         [0x7F7E7D7C, 0, 0x93929190, 0x97969594]),
        ([("", "MOV", "R2,-0x4"), ("", "LDC", "R8,c[0x0][R2+0x214]")], [0x4000, 0, 0, 0]),
        # --- atomics
        ([PUT, ("", "ATOMS.ADD", "R8,[RZ+0x24],R2"), ("", "LDS", "R9,[RZ+0x24]")], [WORDS[1], WORDS[1] + 2, 0, 0]),
        ([PUT, ("", "ATOMS.MAX.S32", "R8,[RZ+0x20],R2"), ("", "LDS", "R9,[RZ+0x20]")], [WORDS[0], 2, 0, 0]),
        ([PUT, ("", "ATOMS.MAX", "R8,[RZ+0x20],R2"), ("", "LDS", "R9,[RZ+0x20]")], [WORDS[0], WORDS[0], 0, 0]),
        ([PUT, ("", "ATOMS.CAS", "R8,[RZ+0x20],R12,R3"), ("", "LDS", "R9,[RZ+0x20]")], [WORDS[0], 3, 0, 0]),
        ([PUT, ("", "ATOMS.CAS", "R8,[RZ+0x20],R3,R2"), ("", "LDS", "R9,[RZ+0x20]")], [WORDS[0], WORDS[0], 0, 0]),
        ([PUT, ("", "ATOMS.CAS.64", "R8,[RZ+0x20],R12,R2"), ("", "LDS.64", "R10,[RZ+0x20]")], [*WORDS[:2], 2, 3]),
        ([("", "STG.E.64", "desc[UR4][R4.64],R12"),
          ("", "ATOMG.E.ADD.64.STRONG.GPU", "PT,R8,desc[UR4][R4.64],R2"), ("", "LDG.E.64", "R10,desc[UR4][R4.64]")],
         [*WORDS[:2], WORDS[0] + 2, WORDS[1] + 3]),
        ([("", "STG.E", "desc[UR4][R4.64],R3"), ("", "RED.E.ADD.STRONG.GPU", "desc[UR4][R4.64],R2"),
          ("", "LDG.E", "R9,desc[UR4][R4.64]")], [0, 5, 0, 0]),
        ([("", "ATOM.E.OR.STRONG.GPU", "PT,R8,desc[UR4][R4.64+0x4],R3"), ("", "LDG.E.64", "R10,desc[UR4][R4.64]")],
         [0, 0, 0, 3]),
        ([("", "MOV", "R12,0x3f800000"), ("", "MOV", "R13,0x40000000"), ("", "STG.E.64", "desc[UR4][R4.64],R12"),
          ("", "REDG.E.ADD.F32x2.FTZ.RN.STRONG.GPU", "desc[UR4][R4.64],R12"),
          ("", "LDG.E.64", "R8,desc[UR4][R4.64]")], [0x40000000, 0x40800000, 0, 0]),
        ([("", "MOV", "R12,0x3c004000"), ("", "STG.E", "desc[UR4][R4.64],R12"),
          ("", "RED.E.ADD.F16x2.RN.STRONG.GPU", "desc[UR4][R4.64],R12"), ("", "LDG.E", "R8,desc[UR4][R4.64]")],
         [0x40004400, 0, 0, 0]),
        # --- special registers
        ([("", "CS2R", "R8,SRZ"), ("", "CS2R.32", "R10,SR_LTMASK"), ("", "S2UR", "UR6,SR_EQMASK"),
          ("", "MOV", "R11,UR6")], [0, 0, 0, 1]),
        ([("", "S2R", "R8,SR_GEMASK"), ("", "S2R", "R9,SR_CTAID.X"), ("", "S2R", "R10,SR_CgaCtaId")],
         [0xFFFFFFFF, 0, 0, 0]),
        ([("", "R2UR", "UR6,R3"), ("", "MOV", "R8,UR6"), ("", "R2UR.FILL", "PT,UR6,R2"), ("", "MOV", "R9,UR6")],
         [3, 2, 0, 0]),
    ],
)  # fmt: skip
def test_memory_holds_what_is_stored(lines, stored):
    found = run([*BEFORE, *lines, *AFTER], size=16, stack=64, banks={3: BANK})
    assert list(unpack("<4I", found)) == stored


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("", "LDS.U8.64", "R8,[RZ]"), ""),
        (("", "LDS.FROB", "R8,[RZ]"), ".FROB"),
        (("", "LDG.E", "P0,R8,desc[UR4][R4.64]"), "a predicate is written"),
        (("", "LDC", "R8,c[0x3][R2+0x20]"), "an address outside of the parameters"),
        (("", "LDC", "R8,c[0x3][R2+0x1d]"), "an address outside of the parameters"),
        (("", "LDC", "R8,c[0x3][R2+0x1]"), "an address outside of the parameters"),
        (("", "LDC", "R8,c[0x0][R2+0x20c]"), "an address outside of the parameters"),
        (("", "LDC.64", "R8,c[0x3][R2+0x1c]"), "an address outside of the parameters"),
        (("", "LDC.U8", "R8,c[0x3][R2]"), "constant bank 3 by a register"),
        (("", "LDC", "R8,c[0x4][R2]"), "constant bank 4 by a register"),
        (("", "LDC", "R8,R2"), "operand R2"),
        (("", "ATOMS", "R8,[RZ],R2"), ""),
        (("", "ATOMS.ADD.MAX", "R8,[RZ],R2"), ""),
        (("", "ATOMG.E.ADD", "P0,R8,desc[UR4][R4.64],R2"), "a predicate is written"),
        (("", "ATOMG.E.CAS.F32x2", "PT,R8,desc[UR4][R4.64],R2"), ""),
        (("", "S2R", "R8,SR_CLOCKLO"), "SR_CLOCKLO"),
        (("", "S2R", "R8,TID.X"), "TID.X"),
        (("", "R2UR.OR", "UR6,R3"), ".OR"),
        (("", "R2UR", "P0,UR6,R3"), "a predicate is written"),
        (("", "IMNMX.S64", "P0,P1,R6,R2,R4,PT,!PT"), "predicates"),
        (("", "LEA.HI", "RZ,P0,-R2,R3,RZ,0x4"), "a negated number"),
        (("", "F2FP.F16.E6M1.UNPACK_B", "R7,R2"), ".E6M1"),
        (("", "VIMNMX.S16x2", "R7,P0,P1,R2,R3,PT"), "a predicate is written"),
        (("", "MOV", "R7,c[0x4][0x0]"), "constant bank 4"),
        (("", "MOV", "R7,c[0x0][0x40]"), "c[0x0][0x40]"),
        (("", "HGMMA.64x8x16.F32.BF16.SP", "R7,R20,gdesc[UR0],RZ,!UPT"), ".SP"),
        (("", "FROBNICATE", "R7,R2"), ""),
        (("", "IADD3.SAT", "R7,R2,R3,RZ"), ".SAT"),
    ],
)
def test_what_is_not_known_is_refused_with_its_place(line, why):
    lines = [*BEFORE, ("", "MOV", "R2,RZ"), line]
    with pytest.raises(NotUnderstood) as refused:
        run([*lines, *AFTER], size=16, banks={3: BANK})
    assert str(refused.value) == str(NotUnderstood(line[1], INSTRUCTION_BYTES * (len(lines) - 1), why))


def test_two_halves_of_a_constant():
    """HFMA2.MMA R7, -RZ, RZ, 0, 2.38e-07: its numbers are in the instruction's upper bits."""
    lines = [("", "HFMA2.MMA", "R7,-RZ,RZ,0,2.384185791015625e-07"), *STORE]
    assert run(lines, immediates={0: 4}) == pack("<I", 4)


ONES = [("", "MOV", f"R{at},0x3c003c00") for at in range(20, 30)]


@pytest.mark.parametrize(
    ("arch", "code", "stored"),
    [
        (90, ("", "HMMA.16816.F32", "R12,R20,R24,R16"), 17.0),
        (80, ("", "HMMA.16816.F32", "R12,R20,R24,R16"), 17.0),
        (90, ("", "HMMA.1688.F32", "R12,R20,R24,R16"), 9.0),
    ],
)
def test_products_of_a_warp(arch, code, stored):
    added = [("", "MOV", f"R{at},0x3f800000") for at in range(16, 20)]
    place = [("", "LDC.64", "R4,c[0x0][0x210]") if arch == 90 else ("", "LDC.64", "R4,c[0x0][0x160]")]
    tail = [("", "S2R", "R6,SR_TID.X"), ("", "IMAD.WIDE.U32", "R4,R6,0x4,R4"), ("", "STG.E", "desc[UR4][R4.64],R13")]
    found = run([*ONES, *added, code, *place, *tail], threads=32, arch=arch, size=128)
    assert np.frombuffer(found, np.float32).tolist() == [stored] * 32


def test_lanes_part_and_meet():
    """Lanes below 5 add in a loop as often as their number; then all exchange what they have."""
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", "MOV", "R7,RZ"),
        ("", "MOV", "R8,RZ"),
        ("", "ISETP.GE.AND", "P0,PT,R0,0x5,PT"),
        ("", "BSSY", "B0,0xa0"),
        ("@P0", "BRA", "0xa0"),
        ("", "IADD3", "R7,R7,R0,RZ"),  # 0x60
        ("", "IADD3", "R8,R8,0x1,RZ"),
        ("", "ISETP.LE.AND", "P1,PT,R8,R0,PT"),
        ("@P1", "BRA", "0x60"),
        ("", "BSYNC", "B0"),  # 0xa0
        ("", "SHFL.BFLY", "PT,R9,R7,0x1,0x1f"),
        ("", "LDC.64", "R4,c[0x0][0x210]"),
        ("", "IMAD.WIDE.U32", "R4,R0,0x4,R4"),
        ("", "STG.E", "desc[UR4][R4.64],R9"),
    ]
    found = np.frombuffer(run(lines, threads=32, size=128), np.uint32)
    mine = [lane * (lane + 1) if lane < 5 else 0 for lane in range(32)]
    assert found.tolist() == [mine[lane ^ 1] for lane in range(32)]


def test_lanes_that_come_late_are_waited_for():
    """Odd lanes take a way round that lies behind the end; BSYNC brings all together, and the vote has all."""
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", "LOP3.LUT", "P0,RZ,R0,0x1,RZ,0xc0,!PT"),
        ("", "BSSY", "B0,0x40"),
        ("@P0", "BRA", "0x90"),
        ("", "BSYNC", "B0"),  # 0x40
        ("", "VOTE.ANY", "R9,PT,PT"),
        ("", "LDC.64", "R4,c[0x0][0x210]"),
        ("", "STG.E", "desc[UR4][R4.64],R9"),
        ("", "EXIT", ""),
        ("", "BRA", "0x40"),  # 0x90
    ]
    assert run(lines, threads=32) == b"\xff" * 4


@pytest.mark.parametrize("barrier", ["0x0", "R10,R10", "R11,R11"])
def test_barriers_join_warps_of_a_cta(barrier):
    """Each thread writes to shared memory what another warp reads behind the barrier. The second warp writes late.
    A register that is given twice holds the number, and the count of threads from bit 16 on; 0 is all."""
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", "MOV", "R10,0x1"),
        ("", "MOV", "R11,0x400001"),
        ("", "SHF.L.U32", "R1,R0,0x2,RZ"),
        ("", "ISETP.GE.AND", "P0,PT,R0,0x20,PT"),
        ("@P0", "BRA", "0xf0"),
        ("", "STS", "[R1],R0"),
        ("", "BAR.SYNC.DEFER_BLOCKING", barrier),  # 0x70
        ("", "LOP3.LUT", "R2,R1,0x80,RZ,0x3c,!PT"),
        ("", "LDS", "R9,[R2]"),
        ("", "LDC.64", "R4,c[0x0][0x210]"),
        ("", "IMAD.WIDE.U32", "R4,R0,0x4,R4"),
        ("", "STG.E", "desc[UR4][R4.64],R9"),
        ("", "EXIT", ""),
        ("", "NOP", ""),
        ("", "STS", "[R0.X4],R0"),  # 0xf0
        ("", "BRA", "0x70"),
    ]
    found = np.frombuffer(run(lines, threads=64, size=256), np.uint32)
    assert found.tolist() == [thread ^ 32 for thread in range(64)]


@pytest.mark.parametrize(
    ("how", "by", "mask", "inside"),
    [
        ("UP", 1, "RZ", [lane >= 1 for lane in range(32)]),
        ("DOWN", 4, "0x1f", [lane < 28 for lane in range(32)]),
        ("BFLY", 8, "0x180f", [lane & 8 != 0 for lane in range(32)]),
    ],
)
def test_shuffles_tell_whether_their_source_is_inside(how, by, mask, inside):
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", f"SHFL.{how}", f"P0,R9,R0,{by:#x},{mask}"),
        ("", "SEL", "R9,R9,-0x1,P0"),
        ("", "LDC.64", "R4,c[0x0][0x210]"),
        ("", "IMAD.WIDE.U32", "R4,R0,0x4,R4"),
        ("", "STG.E", "desc[UR4][R4.64],R9"),
    ]
    found = np.frombuffer(run(lines, threads=32, size=128), np.int32)
    other = {"UP": lambda lane: lane - by, "DOWN": lambda lane: lane + by, "BFLY": lambda lane: lane ^ by}[how]
    assert found.tolist() == [other(lane) if good else -1 for lane, good in enumerate(inside)]


def test_a_subroutine_returns():
    lines = [
        ("", "MOV", "R6,0x30"),
        ("", "MOV", "R7,0x2"),
        ("", "CALL.REL.NOINC", "0x70"),
        ("", "IADD3", "R7,R7,0x1,RZ"),  # 0x30
        *STORE,
        ("", "EXIT", ""),
        ("", "SHF.L.U32", "R7,R7,0x4,RZ"),  # 0x70
        ("", "RET.REL.NODEC", "R6,0x0"),
    ]
    assert run(lines) == pack("<I", 33)


def test_what_nothing_has_written_shows():
    one, other = (run(STORE, garbage=garbage) for garbage in (1, 2))
    assert one != other


def test_an_exclusive_wait_is_for_the_lanes_of_its_mask():
    """Executed on an H100: the other lanes wait behind it."""
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", "MOV", "R8,0x55555555"),
        ("", "LOP3.LUT", "P0,RZ,R0,0x1,RZ,0xc0,!PT"),
        ("@P0", "BRA", "0x50"),
        ("", "WARPSYNC.EXCLUSIVE", "R8"),
        ("", "WARPSYNC.ALL", ""),  # 0x50
        ("", "LDC.64", "R4,c[0x0][0x210]"),
        ("", "STG.E", "desc[UR4][R4.64],R8"),
        ("", "EXIT", ""),
    ]
    assert run(lines, threads=32) == b"\x55" * 4


def test_a_collective_waits_for_its_lanes():
    """-O0 writes so. The register of a lane that is not there yet says nothing of who is waited for."""
    lines = [
        ("", "S2R", "R0,SR_TID.X"),
        ("", "MOV", "R8,RZ"),
        ("", "LOP3.LUT", "P0,RZ,R0,0x1,RZ,0xc0,!PT"),
        ("@P0", "BRA", "0xb0"),
        ("", "MOV", "R8,0xffffffff"),  # 0x40
        ("", "WARPSYNC.COLLECTIVE", "R8,0x80"),
        ("", "VOTE.ANY", "R8,PT,PT"),
        ("", "ENDCOLLECTIVE", ""),
        ("", "LDC.64", "R4,c[0x0][0x210]"),  # 0x80
        ("", "STG.E", "desc[UR4][R4.64],R8"),
        ("", "EXIT", ""),
        ("", "BRA", "0x40"),  # 0xb0
    ]
    assert run(lines, threads=32) == b"\xff" * 4
    with pytest.raises(NotUnderstood, match="different masks"):
        run([*lines[:3], ("@P0", "MOV", "R8,0xaaaaaaaa"), ("@!P0", "MOV", "R8,0x55555555"), *lines[5:]], threads=32)


def test_an_access_outside_of_the_buffer_is_a_fault():
    with pytest.raises(Fault, match="outside"):
        run([*START, ("", "STG.E", "desc[UR4][R2.64],R7")])


# --- known bugs of ptxas -------------------------------------------------------------------------


def test_constants_of_the_module(tools):
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer
    from tritonhook.emulate.run import Run, run_ptx
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble
    from tritonhook.verify.cpu import run_cubin

    ptx = Ptx(
        """.version 8.0
.target sm_90a
.address_size 64
.const .align 4 .b32 table[4] = {3, 5, 7, 9};
.visible .entry k(.param .u64 out)
{
.reg .b64 %rd<2>; .reg .b32 %r<2>;
ld.param.u64 %rd0, [out]; ld.const.b32 %r0, [table+8]; st.global.b32 [%rd0], %r0;
ret;
}
"""
    )
    launch = Launch("k", (1, 1, 1), (1, 1, 1), (Pointer("out", 0),), (Buffer(4, "uint8"),))
    made, again = assemble(tools.ptxas, ptx, ["-O3"]), Run(launch, (0,))
    assert isinstance(made, Assembled)
    stored = [run_ptx(ptx, again, [bytes(4)]), run_cubin(made.cubin, "k", again, [bytes(4)])]
    assert [one.contents[0] for one in stored] == [pack("<I", 7)] * 2


def bugs():
    from tritonhook.ptx.miscompiles import MISCOMPILATIONS

    return MISCOMPILATIONS


@pytest.mark.parametrize(
    "bug",
    [pytest.param(bug, marks=[pytest.mark.nightly] * (n % 3 != 1)) for n, bug in enumerate(bugs())],
    ids=lambda bug: bug.name,
)
def test_ptx_and_machine_code_differ_where_ptxas_is_wrong(bug, tools):
    """`k(out, in)` under the ptxas at hand: PTX has what it says, and the machine code has it if its range says so."""
    from bug_examples import EXAMPLES, ptx_of

    from benchmarks.lab.miscompiles import NEWER, PTX_VERSIONS
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer
    from tritonhook.emulate.run import Run, run_ptx
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble
    from tritonhook.verify.cpu import run_cubin

    size, example = len(EXAMPLES[bug.name].expected), EXAMPLES[bug.name]
    for lines, expected in ((example.lines, example.expected), (example.near, example.near_expected)):
        version = NEWER if "e4m3" in lines else PTX_VERSIONS["sm_90a"]
        ptx = Ptx(ptx_of(lines, "sm_90a", version))
        buffers = (Buffer(size, "uint8"), Buffer(len(example.given), "uint8"))
        launch = Launch("k", (1, 1, 1), (example.threads, 1, 1), (Pointer("out", 0), Pointer("in", 1)), buffers)
        contents, again = [bytes(size), example.given], Run(launch, (0,))
        assert run_ptx(ptx, again, contents).contents[0] == expected
        made = assemble(tools.ptxas, ptx, ["-O3"])
        if not isinstance(made, Assembled):
            continue
        wanted = "right" if lines == example.near else bug.verdict(tools.ptxas.version, "sm_90a").value
        stored = run_cubin(made.cubin, "k", again, contents).contents[0]
        assert ("right" if stored == expected else "wrong") == wanted


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [((), b"abcd" + bytes(4) + b"12345678" + b"x"), ((0, 12, 20), b"abcd" + bytes(8) + b"12345678" + b"x")],
)
def test_parameters_lie_where_the_image_says_or_aligned_to_their_sizes(offsets, wanted):
    kernel = SassKernel(None, 90, (), 0, 0, {}, offsets=offsets)
    assert kernel.pack([b"abcd", b"12345678", b"x"]) == wanted
