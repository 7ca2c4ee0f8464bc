"""Locks: written the same every time, read back, and every kind of damage named."""

from __future__ import annotations

import json
import lzma
from dataclasses import replace
from pathlib import Path

import pytest

from tests.snapshot.test_changes import facts
from tritonhook.errors import SnapshotError
from tritonhook.snapshot import lockfile, schema
from tritonhook.snapshot.facts import Identity, KernelFacts, sha256
from tritonhook.snapshot.lockfile import kept_ptx, lock_text, read_lock, write_lock

PTX = ".version 8.7\n.target sm_90a\n.visible .entry k() { ret; }\n"


def kernels() -> list[tuple[KernelFacts, str | None]]:
    """Three kernels: a usual one, one with everything unusual, one of which little is known."""
    usual = replace(facts("b"), ptx_sha256=sha256(PTX))
    odd = KernelFacts(
        Identity('a "quoted"\\\n\x7f\x01é', "sm_100a", "nvcc", ("X=#1", "Y='2'"), 2),
        "a",
        {"ptx": "0" * 16},
        sha256(PTX + " "),
        "13.5.37",
        (),
        ("1" * 16, "2" * 16),
        {**facts().figures, "spill_stores": None},
        {"tensor": 3},
        96,
        launch_bounds=("maxntid 96 1 1", "explicitcluster"),
        dynamic_shared=1024,
        rewrites="mma-throughput",
    )
    little = replace(
        facts("c"), stages={}, ptx_sha256=None, ptxas=None, options=None, codes=(), figures={}, threads=None
    )
    valid = {"stages": {"ttir": "a" * 16, "ptx": "d" * 16}, "codes": ("f" * 16,)}
    return [
        (replace(usual, **valid, entry="cutlass_b"), PTX),
        (odd, PTX + " "),
        (little, None),
    ]


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    path = tmp_path / "tritonhook.lock"
    write_lock(path, kernels())
    return path


def test_what_is_written_is_read_back(lock: Path) -> None:
    found = read_lock(lock)
    wanted = sorted((locked for locked, _ in kernels()), key=lambda locked: locked.identity)
    for got, want in zip(found, wanted, strict=True):
        assert got.entry == want.entry
        assert {n: v for n, v in got.figures.items() if v is not None} == {
            n: v for n, v in want.figures.items() if v is not None
        }
        assert replace(got, figures={}) == replace(want, figures={})
    assert kept_ptx(lock, next(one for one in found if one.identity.kernel == "b")) == PTX


def test_the_order_of_the_kernels_changes_nothing(lock: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "tritonhook.lock"
    other.parent.mkdir()
    write_lock(other, reversed(kernels()))
    assert other.read_bytes() == lock.read_bytes()
    folders = [{path.name: path.read_bytes() for path in Path(f"{one}.d").iterdir()} for one in (lock, other)]
    assert folders[0] == folders[1]
    assert str(tmp_path) not in lock.read_text()


def test_ptx_that_no_kernel_needs_any_more_goes(lock: Path) -> None:
    stranger = Path(f"{lock}.d") / "README.md"
    stranger.write_text("mine")
    write_lock(lock, kernels()[:1])
    assert {path.name for path in stranger.parent.iterdir()} == {f"{sha256(PTX)}.ptx.xz", "README.md"}


def test_an_interrupted_update_leaves_the_old_lock(lock: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, write = lock.read_bytes(), lockfile.write_given

    def interrupted(path: Path, data: str | bytes) -> None:
        if Path(path) == lock:
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(lockfile, "write_given", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_lock(lock, [(replace(kernels()[0][0], ptx_sha256=sha256("new")), "new")])
    assert lock.read_bytes() == before
    assert [kept_ptx(lock, one) for one in read_lock(lock) if one.ptx_sha256]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("registers = 64", "registers = 63", "its values do not fit its seal, so its block was edited"),
        ("registers = 64", "registers = -1", "kernel"),
        ("registers = 64", "registers = 'many'", "kernel"),
        ("registers = 64", "colour = 1", "kernel"),
        ("format = 1", "format = 2", "its format is 2, this version reads 1; update tritonhook"),
        ("format = 1", "", "format is missing"),
        ("[[kernel]]", "[kernel", "no lock, or damaged"),
    ],
)
def test_damage_is_named(lock: Path, old: str, new: str, said: str) -> None:
    text = lock.read_text()
    assert old in text
    lock.write_text(text.replace(old, new))
    with pytest.raises(SnapshotError, match=said) as error:
        read_lock(lock)
    assert str(lock) in str(error.value)


def test_a_kernel_that_is_there_twice_is_named(lock: Path) -> None:
    text = lock.read_text()
    lock.write_text(text + text[text.index("[[kernel]]") :])
    with pytest.raises(SnapshotError, match=" twice; make the lock again"):
        read_lock(lock)


def test_blocks_of_two_branches_may_be_merged(lock: Path, tmp_path: Path) -> None:
    other = tmp_path / "branch.lock"
    write_lock(other, [(replace(kernels()[0][0], identity=Identity("d", "sm_80", "Triton"), entry="d"), PTX)])
    lock.write_text(lock.read_text() + "\n" + other.read_text()[other.read_text().index("[[kernel]]") :])
    assert [one.identity.kernel for one in read_lock(lock)][-1] == "d"


def test_kept_ptx_that_is_missing_altered_or_packed_otherwise_is_named(lock: Path) -> None:
    (kernel,) = [one for one in read_lock(lock) if one.identity.kernel == "b"]
    place = Path(f"{lock}.d") / f"{sha256(PTX)}.ptx.xz"
    for data in (lzma.compress(PTX.replace("ret", "trap").encode()), b"not packed", b""):
        place.write_bytes(data)
        with pytest.raises(SnapshotError, match="not the locked PTX of b sm_90a"):
            kept_ptx(lock, kernel)
        write_lock(lock, kernels())  # writing the lock again mends it
        assert kept_ptx(lock, kernel) == PTX
    place.unlink()
    with pytest.raises(SnapshotError, match="cannot read the PTX of b sm_90a: No such file"):
        kept_ptx(lock, kernel)


def test_a_kernel_without_ptx_cannot_be_assembled_again(lock: Path) -> None:
    (kernel,) = [one for one in read_lock(lock) if one.identity.kernel == "c"]
    with pytest.raises(SnapshotError, match="had no PTX"):
        kept_ptx(lock, kernel)


def test_a_lock_of_hugging_face_is_named_and_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kernels.lock"
    theirs = [
        {"repo_id": "kernels-community/activation", "sha": "0" * 40, "variants": {"torch28": {"hash": "sha256-"}}}
    ]
    path.write_text(json.dumps(theirs, indent=2))
    with pytest.raises(SnapshotError, match="a lock of Hugging Face's kernels, not of tritonhook"):
        read_lock(path)
    with pytest.raises(SnapshotError, match="Hugging Face's kernels.*, so it is not replaced; name another file"):
        write_lock(path, kernels())
    assert json.loads(path.read_text()) == theirs


def test_no_lock_is_an_error_that_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="`tritonhook lock` makes one"):
        read_lock(tmp_path / "none.lock")


ODD = ["", "\u00e9 = \u2192", '"', "\\", "a\nb", "\x1b\x7f", "[[kernel]]", '" = "', "# x", "{ }", "'"]


@pytest.mark.parametrize("text", ODD)
def test_a_lock_is_read_as_any_toml_reader_reads_it(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    base = kernels()[0][0]
    one = replace(base, options=("-v", text), stages={text: "0" * 16, "b": "1" * 16}, launch_bounds=(text,))
    data = lock_text("k.lock", [one, base], tests=[text]).encode()
    quick = schema._quickly(data)
    assert quick is not None and quick.kernel[0].options == ["-v", text]
    monkeypatch.setattr(schema, "_quickly", lambda data: None)
    assert schema.read_lock(data, "k.lock") == quick
