"""Operations on one number to compare with the model: operands of many kinds, the probe, and what the model says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.numerics.probe_kernels import Probe
from tritonhook.emulate import mufu, numbers, numbers64

Words = Sequence[np.ndarray]
HALF = np.uint32(0xFFFF)


@dataclass(frozen=True)
class Operation:
    """One instruction. kinds: of its operands (f64, b64 take two words). model: words in, words out. scale: a divisor
    of the number of samples, for models that are slow."""

    name: str
    body: str
    kinds: tuple[str, ...]
    words_out: int
    model: Callable[..., np.ndarray]
    scale: int = 1

    @property
    def probe(self) -> Probe:
        return Probe(self.body, sum(2 if kind.endswith("64") else 1 for kind in self.kinds), self.words_out)

    def expected(self, words: Words) -> np.ndarray:
        """The model's words (words_out, samples)."""
        operands, at = [], 0
        for kind in self.kinds:
            if kind.endswith("64"):
                operands.append(words[at].astype(np.uint64) | words[at + 1].astype(np.uint64) << np.uint64(32))
                at += 1
            else:
                operands.append(words[at])
            at += 1
        found = self.model(*operands)
        if found.dtype.itemsize == 8:
            found = found.astype(np.uint64) if found.dtype != np.int64 else found.view(np.uint64)
            return np.stack(
                [(found & np.uint64(0xFFFF_FFFF)).astype(np.uint32), (found >> np.uint64(32)).astype(np.uint32)]
            )
        return found.astype(np.uint32)[None]


SPECIAL: dict[str, list[int]] = {
    "f32": [
        *(0, 1, 0x007FFFFF, 0x00800000, 0x00800001, 0x3F800000, 0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7FC00001),
        *(0x7F800001, 0x4B800000, 0x4F000000, 0x5F000000, 0x33800000, 0x477FE000, 0x477FF000, 0x38800000, 0x387FE000),
    ],
    "f16": [0, 1, 0x3FF, 0x400, 0x401, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E01, 0x7C01, 0x1400],
    "bf16": [0, 1, 0x7F, 0x80, 0x81, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC1, 0x7F81],
}


def drawn(draw: np.random.Generator, kind: str, count: int) -> list[np.ndarray]:
    """The words of an operand: random bits, numbers near one, and special ones."""
    if kind.endswith("64"):
        high, low = drawn(draw, "b32", count)[0], drawn(draw, "b32", count)[0]
        if kind == "f64":
            near = draw.standard_normal(count).view(np.uint64)
            wide = np.ldexp(draw.standard_normal(count), draw.integers(-400, 400, count)).view(np.uint64)
            near = np.where(draw.random(count) < 0.6, near, wide)
            some = draw.random(count) < 0.97
            high = np.where(some, (near >> np.uint64(32)).astype(np.uint32), high)
            low = np.where(some, near.astype(np.uint32), low)
        return [low, high]
    bits = draw.integers(0, 1 << 32, count, np.uint32)
    if kind == "b32":
        small = draw.integers(0, 1 << 10, count, np.uint32)
        return [np.where(draw.random(count) < 0.2, small, bits)]
    if kind == "f32":
        near = np.ldexp(draw.standard_normal(count), draw.integers(-12, 12, count)).astype(np.float32).view(np.uint32)
        special = draw.choice(np.array(SPECIAL["f32"], np.uint32), count) ^ (bits & np.uint32(1 << 31))
        return [np.select([draw.random(count) < 0.4, draw.random(count) < 0.7], [bits, near], special)]
    name = kind.removesuffix("x2")
    halves = []
    for part in range(2):
        near = numbers.encode(np.ldexp(draw.standard_normal(count), draw.integers(-9, 5, count)), name)
        special = draw.choice(np.array(SPECIAL[name], np.uint32), count) ^ (bits >> np.uint32(part) & 1) << np.uint32(
            15
        )
        halves.append(np.select([draw.random(count) < 0.3, draw.random(count) < 0.8], [bits & HALF, near], special))
    return [(halves[0] | halves[1] << np.uint32(16)).astype(np.uint32)]


def three(instruction: str, operands: int = 3) -> str:
    return f"{instruction} o0, " + ", ".join(f"i{n}" for n in range(operands)) + ";"


def wide(instruction: str, operands: int) -> str:
    moves = " ".join(
        f"mov.b64 {name}, {{i{2 * n}, i{2 * n + 1}}};" for n, name in zip(range(operands), "xyz", strict=False)
    )
    sources = ", ".join("xyz"[:operands])
    return f"{moves} {instruction} r, {sources}; mov.b64 {{o0, o1}}, r;"


def _arithmetic() -> Iterator[Operation]:
    for mode in ("rn", "rz", "rm", "rp"):
        for ftz in (False, True):
            tail = f"{mode}{'.ftz' if ftz else ''}.f32"
            how = {"mode": mode, "ftz": ftz}
            yield Operation(f"fma.{tail}", three(f"fma.{tail}"), ("f32",) * 3, 1, partial(numbers.fma32, **how))
            for name, model in (("add", numbers.add32), ("mul", numbers.mul32), ("div", numbers.div32)):
                yield Operation(f"{name}.{tail}", three(f"{name}.{tail}", 2), ("f32",) * 2, 1, partial(model, **how))
            for name, model in (("sqrt", numbers.sqrt32), ("rcp", numbers.rcp32)):
                yield Operation(f"{name}.{tail}", three(f"{name}.{tail}", 1), ("f32",), 1, partial(model, **how))
    yield Operation("fma.rn.sat.f32", three("fma.rn.sat.f32"), ("f32",) * 3, 1, partial(numbers.fma32, unit=True))
    for kind in ("f16x2", "bf16x2"):
        name = kind[:-2]
        for tail, how in (("", {}), (".relu", {"relu": True}), (".ftz", {"ftz": True}), (".sat", {"unit": True})):
            if name == "bf16" and tail not in ("", ".relu"):
                continue
            body = three(f"fma.rn{tail}.{kind}")
            yield Operation(
                f"fma.rn{tail}.{kind}", body, (kind,) * 3, 1, partial(numbers.fma_halves, name=name, **how), 4
            )
        for op, model in (
            ("add", partial(numbers.add_halves, name=name)),
            ("mul", partial(numbers.mul_halves, name=name)),
        ):
            yield Operation(
                f"{op}.rn.{kind}", three(f"{op}.rn.{kind}", 2), (kind,) * 2, 1, partial(model, name=name), 4
            )
    for mode in ("rn", "rz", "rp"):
        for op, count, model in (("fma", 3, numbers64.fma64), ("add", 2, numbers64.add64), ("mul", 2, numbers64.mul64)):
            text = f"{op}.{mode}.f64"
            scale = 16 if mode == "rn" else 64
            yield Operation(text, wide(text, count), ("f64",) * count, 2, partial(model, mode=mode), scale)
    yield Operation("div.rn.f64", wide("div.rn.f64", 2), ("f64",) * 2, 2, numbers64.div64, 16)
    yield Operation("sqrt.rn.f64", wide("sqrt.rn.f64", 1), ("f64",), 2, numbers64.sqrt64, 16)


def _pair(source: str, target: str, mode: str = "rn", bits: int = 16, **how: bool) -> Callable[..., np.ndarray]:
    """Two f32, the first into the upper half."""

    def model(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        high, low = (numbers.convert(one, source, target, mode, **how) for one in (a, b))
        return high << np.uint32(bits) | low

    return model


def _conversions() -> Iterator[Operation]:
    for target in ("f16", "bf16"):
        for mode in ("rn", "rz"):
            for tail, how in (("", {}), (".relu", {"relu": True})):
                text = f"cvt.{mode}{tail}.{target}x2.f32"
                yield Operation(text, three(text, 2), ("f32",) * 2, 1, _pair("f32", target, mode, **how), 2)
    for target in ("e4m3", "e5m2"):
        text = f"cvt.rn.satfinite.{target}x2.f32"
        body = f"{text} s0, i0, i1; cvt.u32.u16 o0, s0;"
        yield Operation(text, body, ("f32",) * 2, 1, _pair("f32", target, bits=8, finite=True), 4)
        text = f"cvt.rn.f16x2.{target}x2"
        body = f"cvt.u16.u32 s0, i0; {text} o0, s0;"
        yield Operation(text, body, ("b32",), 1, _unpacked(target), 4)
        text = f"cvt.rn.satfinite.{target}x2.f16x2"
        body = f"{text} s0, i0; cvt.u32.u16 o0, s0;"
        yield Operation(text, body, ("f16x2",), 1, _packed_from_halves(target), 4)
    text = "cvt.rna.tf32.f32"
    yield Operation(
        text, three(text, 1), ("f32",), 1, partial(numbers.convert, source="f32", target="tf32", mode="rna"), 4
    )
    text = "cvt.f32.f16"
    body = f"cvt.u16.u32 s0, i0; {text} o0, s0;"
    yield Operation(text, body, ("f16x2",), 1, lambda a: numbers.convert(a & HALF, "f16", "f32"))
    text = "cvt.rn.f16.f32"
    yield Operation(
        text, f"{text} s0, i0; cvt.u32.u16 o0, s0;", ("f32",), 1, partial(numbers.convert, source="f32", target="f16")
    )
    for bits, signed in ((32, True), (32, False), (64, True), (64, False), (16, True), (8, True)):
        kind = f"{'s' if signed else 'u'}{bits}"
        for mode in ("rni", "rzi", "rmi", "rpi"):
            text = f"cvt.{mode}.{kind}.f32"
            body = f"{text} r, i0; mov.b64 {{o0, o1}}, r;" if bits == 64 else three(text, 1)
            yield Operation(text, body, ("f32",), 2 if bits == 64 else 1, _to_integer(bits, signed, mode[:2], "f32"), 4)
            if bits >= 32 and mode == "rzi":
                text = f"cvt.{mode}.{kind}.f64"
                moved = "mov.b64 x, {i0, i1};"
                body = f"{moved} {text} r, x; mov.b64 {{o0, o1}}, r;" if bits == 64 else f"{moved} {text} o0, x;"
                yield Operation(text, body, ("f64",), bits // 32, _to_integer(bits, signed, "rz", "f64"), 4)
    for mode in ("rn", "rz", "rp"):
        for kind, dtype in (("s32", np.int32), ("u32", np.uint32), ("s64", np.int64), ("u64", np.uint64)):
            text = f"cvt.{mode}.f32.{kind}"
            body = f"mov.b64 x, {{i0, i1}}; {text} o0, x;" if kind.endswith("64") else three(text, 1)
            yield Operation(text, body, ("b64" if kind.endswith("64") else "b32",), 1, _from_integer(dtype, mode), 4)
        text = f"cvt.{mode}.f32.f64"
        yield Operation(
            text, f"mov.b64 x, {{i0, i1}}; {text} o0, x;", ("f64",), 1, partial(numbers64.narrow64, mode=mode), 4
        )
    yield Operation("cvt.f64.f32", "cvt.f64.f32 r, i0; mov.b64 {o0, o1}, r;", ("f32",), 2, numbers64.widen64, 4)


def _unpacked(name: str) -> Callable[..., np.ndarray]:
    def model(a: np.ndarray) -> np.ndarray:
        low, high = (numbers.convert(a >> np.uint32(at) & np.uint32(0xFF), name, "f16") for at in (0, 8))
        return low | high << np.uint32(16)

    return model


def _packed_from_halves(name: str) -> Callable[..., np.ndarray]:
    def model(a: np.ndarray) -> np.ndarray:
        low, high = (numbers.convert(a >> np.uint32(at) & HALF, "f16", name, finite=True) for at in (0, 16))
        return low | high << np.uint32(8)

    return model


def _to_integer(bits: int, signed: bool, mode: str, source: str) -> Callable[..., np.ndarray]:
    def model(a: np.ndarray) -> np.ndarray:
        found = numbers.to_integer(numbers.decode(a, source), bits, signed, mode, source == "f64")
        return found if bits == 64 else found.astype(np.int64).astype(np.uint32)

    return model


def _from_integer(dtype: type, mode: str) -> Callable[..., np.ndarray]:
    def model(a: np.ndarray) -> np.ndarray:
        values = a.view(dtype)
        whole = values if values.dtype.itemsize == 8 else values.astype(np.int64)
        return numbers.encode(numbers.from_integer(whole), "f32", mode)

    return model


FUNCTIONS = {
    "ex2": "ex2",
    "lg2": "lg2",
    "rcp": "rcp",
    "rsq": "rsqrt",
    "sqrt": "sqrt",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
}


def approximations() -> Iterator[tuple[str, Operation]]:
    """Special functions of f32: the name in the model, and the operation, flushed and not."""
    for name in FUNCTIONS:
        for ftz in (True, False):
            if name == "tanh" and ftz:
                continue
            text = f"{'rsqrt' if name == 'rsq' else name}.approx{'.ftz' if ftz else ''}.f32"
            yield (
                name,
                Operation(
                    text, three(text, 1), ("f32",), 1, lambda a, name=name, ftz=ftz: mufu.approximate(name, a, ftz)
                ),
            )


def operations() -> Iterator[Operation]:
    yield from _arithmetic()
    yield from _conversions()
