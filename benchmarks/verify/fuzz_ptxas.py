"""Look for miscompilations that nobody knows: made-up PTX, by the newest ptxas at hand, emulated in both forms.

    python -m benchmarks fuzz_ptxas [--programs N] [--seed N] [--target sm_XX] [--ptxas VERSION] [--found FOLDER]
        [--seconds S]

Programs come from a grammar: integers of 32 and 64 bits, packed 16 bits, bit fields, predicates, branches, loops,
shuffles and votes of one warp, with numbers at which things change. Each is executed on the CPU from its PTX and from
its machine code (`tritonhook.emulate`); both have to store the same. One that differs is written to --found with its
launch, for `tritonhook verify --cpu`; unless it has the pattern of a known bug, a minimised one lies beside it.
Evidence: emulated; a difference may also be a fault of the emulator. Left out: abs of -2^31, which ptxas takes for
positive (13.5.37 makes 65535 of its saturation to u16, at -O0 it is 0); PTX does not say what it is.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NEEDS = ("numpy",)
RESULT = None
QUICK = ("--programs", "20")
AT_ONCE = 20  # programs of a module
THREADS, WORDS, WIDE = 32, 10, 4  # registers %r0.. and %d0.. that a program computes with
_LIMIT_S = 60.0
_NUMBERS = (0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000)
_NUMBERS += (0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFFE, 0x5555_5555, 0x0101_0101, 0x8080_8080)
_ONE = ("neg.s32", "not.b32", "popc.b32", "clz.b32", "brev.b32", "bfind.u32", "bfind.s32", "cnot.b32")
_ONE += ("cvt.s32.s8", "cvt.u32.u8", "cvt.s32.s16", "cvt.u32.u16", "cvt.sat.s8.s32", "cvt.sat.u16.s32")
_TWO = ("add.s32", "sub.s32", "mul.lo.s32", "mul.hi.u32", "mul.hi.s32", "and.b32", "or.b32", "xor.b32", "min.s32")
_TWO += ("min.u32", "max.s32", "max.u32", "shl.b32", "shr.u32", "shr.s32", "add.sat.s32", "mul24.lo.s32")
_PACKED = ("add.u16x2", "add.s16x2", "min.s16x2", "min.u16x2", "max.s16x2", "max.u16x2")
_THREE = ("mad.lo.s32", "mad.hi.u32", "prmt.b32", "sad.s32", "sad.u32", "shf.l.wrap.b32")
_THREE += ("shf.r.clamp.b32", "dp4a.u32.u32", "dp4a.s32.u32", "dp2a.lo.s32.s32")
_TWO_WIDE = ("add.s64", "sub.s64", "mul.lo.s64", "and.b64", "or.b64", "xor.b64", "min.s64", "max.u64")
_COMPARED = ("eq.s32", "ne.u32", "lt.s32", "le.u32", "gt.s32", "ge.u32", "lo.u32", "hi.u32")


class Program:
    """One made-up program. lines: its statements."""

    def __init__(self, draw: random.Random) -> None:
        self.draw, self.lines, self._labels = draw, list[str](), 0
        for _ in range(draw.randrange(8, 40)):
            self._any()

    def _register(self) -> str:
        return f"%r{self.draw.randrange(WORDS)}"

    def _wide(self) -> str:
        return f"%d{self.draw.randrange(WIDE)}"

    def _flag(self) -> str:
        return f"%p{self.draw.randrange(4)}"

    def _source(self) -> str:
        return str(self.draw.choice(_NUMBERS)) if self.draw.random() < 0.35 else self._register()

    def _bits(self) -> str:
        """Where a bit field begins, or its length: ptxas takes no larger number."""
        return str(self.draw.randrange(40)) if self.draw.random() < 0.7 else self._register()

    def _any(self, depth: int = 0) -> None:
        makers = [self._simple] * 16 + [self._of_flags] * 4 + [self._of_wide] * 3 + [self._of_lanes] * (not depth)
        makers += [self._branch, self._loop] if depth < 2 else []
        self.draw.choice(makers)(depth)

    def _simple(self, depth: int) -> None:
        kind, d, a, b = self.draw.randrange(10), self._register(), self._register(), self._source()
        if kind < 2:
            line = f"{self.draw.choice(_ONE)} {d}, {a};"
        elif kind < 6:
            line = f"{self.draw.choice(_TWO)} {d}, {a}, {b};"
        elif kind < 7:
            line = f"{self.draw.choice(_PACKED)} {d}, {a}, {self._register()};"
        elif kind < 8:
            line = f"lop3.b32 {d}, {a}, {b}, {self._register()}, {self.draw.randrange(256)};"
        elif kind < 9:
            line = f"{self.draw.choice(_THREE)} {d}, {a}, {b}, {self._source()};"
        elif self.draw.random() < 0.5:
            line = f"bfe.{self.draw.choice('us')}32 {d}, {a}, {self._bits()}, {self._bits()};"
        else:
            line = f"bfi.b32 {d}, {a}, {self._register()}, {self._bits()}, {self._bits()};"
        guard = f"@{self.draw.choice(('', '!'))}{self._flag()} " if self.draw.random() < 0.15 else ""
        self.lines.append(guard + line)

    def _of_flags(self, depth: int) -> None:
        if self.draw.random() < 0.5:
            self.lines.append(
                f"setp.{self.draw.choice(_COMPARED)} {self._flag()}, {self._register()}, {self._source()};"
            )
        else:
            self.lines.append(f"selp.b32 {self._register()}, {self._source()}, {self._source()}, {self._flag()};")

    def _of_wide(self, depth: int) -> None:
        kind, d, r = self.draw.randrange(6), self._wide(), self._register()
        lines = (
            f"{self.draw.choice(_TWO_WIDE)} {d}, {self._wide()}, {self._wide()};",
            f"{self.draw.choice(('shl.b64', 'shr.u64', 'shr.s64'))} {d}, {self._wide()}, {self._source()};",
            f"{self.draw.choice(('mul.wide.s32', 'mul.wide.u32'))} {d}, {r}, {self._source()};",
            f"mad.wide.u32 {d}, {r}, {self._source()}, {self._wide()};",
            f"{self.draw.choice(('cvt.s64.s32', 'cvt.u64.u32'))} {d}, {r};",
            f"{self.draw.choice(('cvt.u32.u64', 'popc.b64', 'clz.b64'))} {r}, {self._wide()};",
        )
        self.lines.append(lines[kind])

    def _of_lanes(self, depth: int) -> None:
        """All lanes are here: not in a branch."""
        d, a = self._register(), self._register()
        if self.draw.random() < 0.7:
            how = self.draw.choice(("bfly", "up", "down", "idx"))
            last = 0 if how == "up" else 31
            self.lines.append(f"shfl.sync.{how}.b32 {d}, {a}, {self.draw.randrange(32)}, {last}, -1;")
        else:
            self.lines.append(f"vote.sync.ballot.b32 {d}, {self._flag()}, -1;")

    def _branch(self, depth: int) -> None:
        label, flag = self._label(), self._flag()
        self.lines.append(f"@{flag} bra {label};")
        for _ in range(self.draw.randrange(1, 6)):
            self._any(depth + 1)
        self.lines.append(f"{label}:")

    def _loop(self, depth: int) -> None:
        """At most as often as a number of three bits says, which no other statement changes."""
        label, count = self._label(), f"%c{depth}"
        self.lines += [f"and.b32 {count}, {self._register()}, 7;", f"{label}:"]
        for _ in range(self.draw.randrange(1, 6)):
            self._any(depth + 1)
        self.lines += [
            f"sub.s32 {count}, {count}, 1;",
            f"setp.gt.s32 %q{depth}, {count}, 0;",
            f"@%q{depth} bra {label};",
        ]

    def _label(self) -> str:
        self._labels += 1
        return f"L{self._labels}"

    def text(self, name: str) -> str:
        """An entry that reads WORDS numbers of each thread, and stores what all registers hold."""
        size = 4 * WORDS + 8 * WIDE
        loads = [f"ld.global.b32 %r{n}, [%in+{4 * n}];" for n in range(WORDS)]
        starts = [f"mov.b64 %d{n}, {{%r{n}, %r{n + WIDE}}};" for n in range(WIDE)]
        flags = [f"setp.lt.s32 %p{n}, %r{n}, 0;" for n in range(4)]
        stores = [f"st.global.b64 [%out+{8 * n}], %d{n};" for n in range(WIDE)]
        stores += [f"st.global.b32 [%out+{8 * WIDE + 4 * n}], %r{n};" for n in range(WORDS)]
        lines = "\n".join(one.replace("L", f"{name}_L") if "bra" in one or ":" in one else one for one in self.lines)
        return f""".visible .entry {name}(.param .u64 out, .param .u64 in)
{{
.reg .b32 %r<{WORDS}>; .reg .b64 %d<{WIDE}>; .reg .pred %p<4>; .reg .pred %q<4>; .reg .b32 %c<4>; .reg .b32 %t;
.reg .b64 %in; .reg .b64 %out; .reg .b64 %at;
ld.param.u64 %out, [out]; ld.param.u64 %in, [in]; mov.u32 %t, %tid.x;
mad.wide.u32 %out, %t, {size}, %out; mad.wide.u32 %in, %t, {4 * WORDS}, %in;
{" ".join(loads + starts + flags)}
{lines}
{" ".join(stores)}
ret;
}}
"""


def inputs(draw: random.Random) -> bytes:
    """Numbers of all threads: some that are special, some of any kind."""
    numbers = [draw.choice(_NUMBERS) if draw.random() < 0.5 else draw.getrandbits(32) for _ in range(THREADS * WORDS)]
    return struct.pack(f"<{len(numbers)}I", *numbers)


def judged(seed: int, tool: Any, target: str) -> Iterator[tuple[Any, str, str]]:
    """AT_ONCE programs: each alone with its launch, as a Trial; what was found, and why."""
    from tritonhook.capture.launches.record import Buffer, Launch, Pointer
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain
    from tritonhook.verify.minimise import Trial

    draw = random.Random(f"{seed} {target}")
    head = f".version 8.7\n.target {target}\n.address_size 64\n"
    entries = {f"k{number}": Program(draw).text(f"k{number}") for number in range(AT_ONCE)}
    module = Ptx(head + "".join(entries.values()))
    made = assemble(tool, module, ["-O3"], _LIMIT_S)
    given, size = inputs(draw), THREADS * (4 * WORDS + 8 * WIDE)
    buffers = Buffer(size, "uint8"), Buffer(len(given), "uint8")
    cubin = made.cubin if isinstance(made, Assembled) else None
    code = reading_toolchain().disassemble(cubin, list(entries)) if cubin else {}
    for name, text in entries.items():
        launch = Launch(name, (1, 1, 1), (THREADS, 1, 1), (Pointer("out", 0), Pointer("in", 1)), buffers)
        trial = Trial(head + text, name, launch, (bytes(size), given))
        yield trial, *(both(module, cubin, code[name], trial) if cubin else ("not assembled", made.summary))


def both(module: Any, cubin: Any, code: Any, trial: Any) -> tuple[str, str]:
    """What a trial's entry stores from its PTX and from its machine code: same, different or not understood; why."""
    from tritonhook.emulate.ptx.kernel import read_kernel
    from tritonhook.emulate.run import Run, run_code, run_ptx
    from tritonhook.emulate.sass.kernel import read_sass_kernel
    from tritonhook.errors import TritonHookError

    run = Run(trial.launch, range(math.prod(trial.launch.grid)), limit_s=_LIMIT_S)
    try:
        wanted = run_ptx(read_kernel(module, trial.entry), run, trial.contents).contents
        found = run_code(read_sass_kernel(cubin, code), run, trial.contents).contents
    except TritonHookError as error:
        return "not understood", str(error)
    return "same" if found == wanted else "different", ""


def minimised(trial: Any, tool: Any, seconds: float) -> Any:
    """The smallest program with the difference of this one that is found in so many seconds."""
    from tritonhook.errors import TritonHookError
    from tritonhook.ptx.module import Ptx
    from tritonhook.ptxas.toolchain import Assembled, assemble, reading_toolchain
    from tritonhook.verify.minimise import minimise

    def differs(one: Any) -> bool:
        try:
            module = Ptx(one.ptx)
            made = assemble(tool, module, ["-O3"], _LIMIT_S)
            if not isinstance(made, Assembled):
                return False
            code = reading_toolchain().disassemble(made.cubin, [one.entry])[one.entry]
            return both(module, made.cubin, code, one)[0] == "different"
        except TritonHookError:
            return False

    return minimise(trial, lambda trials: list(map(differs, trials)), seconds)


def keep(folder: Path, trial: Any) -> None:
    """Write a program with its launch, as `tritonhook verify` takes it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "kernel.ptx").write_text(trial.ptx)
    parameters = []
    for one in trial.launch.parameters:
        (folder / f"{one.name}.bin").write_bytes(trial.contents[one.buffer])
        size = trial.launch.buffers[one.buffer].size
        parameters.append({"name": one.name, "dtype": "uint8", "shape": [size], "values": f"{one.name}.bin"})
    sizes = {"grid": trial.launch.grid, "block": trial.launch.block}
    launch = {"format": 1, "kernel": trial.entry, **sizes, "parameters": parameters}
    (folder / "launch.json").write_text(json.dumps(launch))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="sm_90a")
    parser.add_argument("--ptxas", help="version (default: the newest at hand)")
    parser.add_argument("--found", type=Path, default=Path("fuzz-ptxas"))
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="for minimising each (0: not; default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    from tritonhook._util.versions import version_key
    from tritonhook.ptx.miscompiles import findings
    from tritonhook.ptxas.tool import available_ptxas, find_ptxas

    newest = max(available_ptxas(), key=lambda tool: version_key(tool.version))
    tool = find_ptxas(arguments.ptxas) if arguments.ptxas else newest
    counts: Counter[str] = Counter()
    for number in range(0, arguments.programs, AT_ONCE):
        seed = arguments.seed + number // AT_ONCE
        for at, (trial, verdict, why) in enumerate(judged(seed, tool, arguments.target)):
            known = [hit.place.bug.name for hit in findings(trial.ptx, tool.version) if hit.is_suspect]
            verdict = f"different: {', '.join(known)}" if known and verdict == "different" else verdict
            counts[verdict] += 1
            if verdict == "same":
                continue
            folder = arguments.found / f"{arguments.target}-{seed}-{at}"
            keep(folder, trial)
            if verdict == "different" and arguments.seconds:
                smallest = minimised(trial, tool, arguments.seconds)
                keep(folder / "minimised", smallest.trial)
                why = smallest.summary
            print(f"{verdict}: {folder} {why}", flush=True)
    print(f"ptxas {tool.version}, {arguments.target}:", dict(counts))
    return int(bool(counts["different"]))
