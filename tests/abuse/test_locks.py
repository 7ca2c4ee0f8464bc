"""Hostile locks and policies: each is read, or refused in one line; what is the same many times is worked on once."""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damage import no_hang, outcome
from repository import GOLDEN

from tritonhook.capture.model import Capture, Stage
from tritonhook.errors import SnapshotError
from tritonhook.report.render import terminal
from tritonhook.snapshot.facts import FIGURES, Identity, KernelFacts, identity_of, sha256
from tritonhook.snapshot.lockfile import lock_text, write_lock

from .conftest import LARGE

PTX = (GOLDEN / "triton.sm_90.ptx").read_text()
BIG = 3_000_000 if LARGE else 100_000  # characters of one text


def facts(number: int = 1, *specialisation: str) -> KernelFacts:
    """One of many kernels of one name and one PTX, each with a code that no ptxas gives."""
    identity = Identity("add", "sm_90", "Triton", specialisation, number)
    figures = dict.fromkeys(FIGURES, number)
    return KernelFacts(identity, "add", {}, sha256(PTX), "12.8.93", ("-v",), (f"{number:016x}",), figures)


@pytest.fixture
def lock(tmp_path: Path) -> Callable[..., Path]:
    def write(*kernels: KernelFacts) -> Path:
        path = tmp_path / "k.lock"
        write_lock(path, [(one, PTX) for one in kernels])
        return path

    return write


DEEP = 100_000 if LARGE else 5_000
TEXTS = {
    "lists": ("x = " + "[" * DEEP, "nested too deep"),
    "tables": ("x = " + "{a=" * DEEP, "nested too deep"),
    "a dotted table": ("[" + ".".join("a" * DEEP) + "]", "a key has more than 16 parts"),
    "a dotted key with blanks": ("x = { " + " . ".join("a" * DEEP) + " = 1 }", "a key has more than 16 parts"),
    "quoted keys": (".".join(['"a"'] * DEEP) + " = 1", "a key has more than 16 parts"),
    "digits": ("x = " + "9" * 5_000, "Exceeds the limit (4300 digits)"),
    "values": ("x = [" + "[]," * 600_000 + "]", "values, more than the 1,048,576 that are read"),
    "bytes": ("#" + " " * (1 << 24), "more than the 16,777,216 that are read"),
    "quotes": ('x = "' + '\\"' * BIG, "Illegal character"),
}


@pytest.mark.parametrize("line, says", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("words", ["show k.lock", "run --policy tritonhook.toml script.py"])
def test_toml_that_takes_long_is_refused(
    line: str, says: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.py").touch()
    Path(words.split()[-2 if "policy" in words else -1]).write_text(f"format = 1\n{line}\n")
    code, shown = outcome(*words.split())
    assert code == 2 and says in shown and len(shown.splitlines()) == 1


def test_what_cannot_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = [(facts(1, "x" * (1 << 24)), PTX)]
    with pytest.raises(SnapshotError, match="more than the 16,777,216 that are read; lock fewer kernels"):
        write_lock(tmp_path / "k.lock", kernels)
    assert not list(tmp_path.iterdir())


def test_a_nul_is_no_option(tmp_path: Path) -> None:
    path = tmp_path / "k.lock"
    path.write_text(lock_text(path.name, [replace(facts(), options=("-v", "\0"))]))
    assert "kernel[0].options[1]: expected text without a NUL" in outcome("check", str(path))[1]


OPTIONS = {
    "input": ("--input-as-string", PTX),
    "input, joined": ("-ias=x",),
    "output": ("-o", "stolen"),
    "output, joined": ("--output-file=stolen",),
    "further options": ("-optf", "stolen"),
    "a file of controls": ("--apply-controls=stolen",),
    "another folder's controls": (f"--apply-controls=/x/controls/{'0' * 64}",),
    "a jobserver": ("-jobserver",),
    "what help does not name": ("--dump-all", "stolen"),
    "an input": ("stolen",),
    "a value of several words": ("-O", "3 -o stolen"),
    "a value that is an option": ("-maxrregcount", "-o", "stolen"),
    "digits": ("-maxrregcount=" + "9" * 5_000,),
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options_that_name_a_file_are_refused(options: tuple[str, ...], tmp_path: Path) -> None:
    path, one = tmp_path / "k.lock", replace(facts(), options=options)
    path.write_text(lock_text(path.name, [one]))
    code, shown = outcome("check", str(path))
    assert code == 2 and "is not allowed in a lock" in shown and len(shown) < 1_000
    with pytest.raises(SnapshotError, match="is not allowed in a lock"):
        write_lock(path, [(one, PTX)])


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("megabytes", [2_000 if LARGE else 100])
def test_an_xz_bomb_is_unpacked_up_to_the_limit(megabytes: int, lock: Callable[..., Path]) -> None:
    path = lock(facts())
    packer = lzma.LZMACompressor(preset=0)
    packed = b"".join(packer.compress(b"/" * (1 << 20)) for _ in range(megabytes)) + packer.flush()
    Path(f"{path}.d", f"{sha256(PTX)}.ptx.xz").write_bytes(packed)
    assert "67,108,864 bytes or more when unpacked" in outcome("check", str(path))[1]


@pytest.mark.usefixtures("tools")
def test_an_xz_file_that_wants_much_memory_is_refused(lock: Callable[..., Path]) -> None:
    path = lock(facts())
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    packed = Path(f"{path}.d", f"{sha256(PTX)}.ptx.xz")
    packed.write_bytes(lzma.compress(PTX.encode(), filters=filters))
    assert "not the locked PTX of add sm_90" in outcome("check", str(path))[1]


SPECIALISATIONS = {
    "blanks": "a" + " " * BIG + "b" + " " * BIG,
    "words": "a " * BIG,
    "one word": "a" * BIG,
    "folders": "a/" * BIG,
    "wide": "\u6838 " * BIG,
}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("text", SPECIALISATIONS.values(), ids=SPECIALISATIONS)
@pytest.mark.parametrize("verb", ["show", "check"])
def test_a_text_without_end_is_shortened(verb: str, text: str, lock: Callable[..., Path]) -> None:
    code, shown = outcome(verb, str(lock(facts(1, text), facts(1, "c"))))
    assert code in (0, 1) and len(shown) < 10 * terminal._LONGEST and "…" in shown


@pytest.mark.usefixtures("tools")
def test_many_specialisations(lock: Callable[..., Path]) -> None:
    many = 100_000 if LARGE else 5_000
    sides = [facts(1, *(f"{letter}{n}={n}" for n in range(many))) for letter in "ab"]
    assert outcome("check", str(lock(*sides)))[0] == 1


BROKEN = {
    "an instruction": (facts(), PTX.replace("ret;", "nonsense;")),
    "no text": (facts(), ""),
    "brackets": (facts(), "{" * DEEP),
    "a number": (replace(facts(), options=("-maxrregcount=" + "9" * 1_000,)), PTX),
    "an entry": (replace(facts(), entry="nope"), PTX),
    "a target": (facts(), PTX.replace("sm_90", "sm_999")),
}


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("kernel, text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("verb", ["check {}", "bisect {} --good 12.8.93 --bad 12.9.86 --at-hand"])
def test_what_no_ptxas_takes(verb: str, kernel: KernelFacts, text: str, tmp_path: Path) -> None:
    """Whatever ends with 2 says why on standard error: `outcome` holds that."""
    write_lock(tmp_path / "k.lock", [(replace(kernel, ptx_sha256=sha256(text)), text)])
    code, shown = outcome(*verb.format(tmp_path / "k.lock").split())
    assert code > 0 or "maxrreg" in str(kernel.options), shown


MANY = BIG // 4  # arguments
SIGNATURES = {
    "functions": "tt.func public @add(" * MANY,
    "open types": "tt.func public @add(" + "%a: x<" * MANY + ") attributes",
    "open attributes": "tt.func public @add(" + "%a: x {" * MANY + ") attributes",
    "descriptors": "tt.func public @add(%a: x<" + "!tt.tensordesc<tensor<" * MANY + "> ) attributes",
}


@pytest.mark.parametrize("text", SIGNATURES.values(), ids=SIGNATURES)
def test_signatures_are_read_in_linear_time(text: str) -> None:
    capture = Capture("add", "0" * 8, "sm_90", {Stage.TTIR: text})
    with no_hang():
        identity_of(capture)
