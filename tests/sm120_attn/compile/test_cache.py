"""The cache of compiled kernels. With the DSL: with kernels that are compiled for GPUs that are not at hand."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from sm120_attn.compile import cache as kernels
from sm120_attn.compile import compiler
from sm120_attn.config import Config

CONFIG = Config(arch="sm_120a", head_dim=64, rows_per_warp=16)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SM120_ATTN_CACHE", str(tmp_path / "cache"))
    forget()
    yield tmp_path / "cache"
    forget()


def forget() -> None:
    kernels._environment.cache_clear()
    kernels.key_of.cache_clear()


def test_the_key_follows_all_that_makes_the_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    keys = [kernels.key_of(CONFIG), kernels.key_of(replace(CONFIG, causal=True))]

    # when any of these is another
    for name, value in (
        ("source_hash", lambda kind: "other sources"),
        ("dsl_versions", lambda: {"nvidia-cutlass-dsl-libs-cu13": "4.9.0"}),  # has ptxas inside
        ("_processor", lambda: "another processor"),
        ("FORMAT", 999),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kernels, name, value)
            forget()
            keys.append(kernels.key_of(CONFIG))
    forget()

    # then
    assert len(set(keys)) == len(keys)
    assert kernels.key_of(CONFIG) == keys[0]


def test_the_folder_is_named_or_the_users_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SM120_ATTN_CACHE", "off")
    assert kernels.cache_folder() is None
    assert not kernels.is_cached(CONFIG)
    monkeypatch.delenv("SM120_ATTN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kernels.cache_folder() == tmp_path / "sm120_attn"


def test_the_ptxas_version_is_the_one_in_the_cubin() -> None:
    assert compiler.ptxas_version(b"\0Cuda compilation tools, release 13.4, V13.4.59\0") == "13.4.59"
    assert compiler.ptxas_version(b"no note") is None


def test_without_the_dsl_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cutlass", None)
    monkeypatch.setitem(__import__("sys").modules, "cutlass.cute", None)
    with pytest.raises(ImportError, match=r"pip install 'nvidia-cutlass-dsl\[cu13\]==4.8.1'"):
        compiler.import_dsl()


# --- with the DSL ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with one kernel."""
    pytest.importorskip("cutlass.cute", reason="needs the CuTe DSL: `make test-cute` installs and tests it")
    folder = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SM120_ATTN_CACHE", str(folder))
        kernels.prebuild(CONFIG)
    return folder


@pytest.fixture
def cache(kept: Path, folder: Path) -> Path:
    """A copy of it that a test may spoil."""
    folder.mkdir(parents=True)
    for path in kept.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return folder


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Loading needs a driver; what would be loaded is noted instead."""
    made: list[str] = []

    def stand_in(config, slots, ptxas, cached, function, *alive):
        made.append("from disk" if cached else "compiled")
        return kernels.Compiled(config, kernels.abi.Layout(slots), ptxas, cached, lambda pointers: None, alive)

    monkeypatch.setattr(kernels, "loaded", stand_in)
    monkeypatch.setattr(kernels, "_compiled", {})
    return made


def test_it_is_taken_from_disk_and_only_once(cache: Path, loaded: list[str]) -> None:
    first = kernels.get(CONFIG)
    assert kernels.get(CONFIG) is first
    assert loaded == ["from disk"]
    assert first.ptxas and first.layout.slots[0].codes == "Piiiqqq"


def _flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _other_config(path: Path) -> None:
    record = json.loads(path.with_suffix(".json").read_text())
    record["config"]["head_dim"] = 128
    path.with_suffix(".json").write_text(json.dumps(record))


@pytest.mark.parametrize("spoil", [_flipped, pytest.param(_other_config, marks=pytest.mark.nightly)])  # each compiles
def test_a_spoilt_entry_is_compiled_again_and_replaced(spoil, cache: Path, loaded: list[str]) -> None:
    # given
    (path,) = cache.glob("*.o")
    spoil(path)

    # when
    found = kernels.get(CONFIG)

    # then it is good again, for the next process
    assert loaded == ["compiled"]
    assert found.ptxas
    kernels._compiled.clear()
    kernels.get(CONFIG)
    assert loaded == ["compiled", "from disk"]


def test_a_folder_that_cannot_be_written_costs_only_a_warning(
    kept: Path, tmp_path: Path, loaded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SM120_ATTN_CACHE", str(tmp_path / "file" / "folder"))
    with pytest.warns(RuntimeWarning, match="sm120_attn: cannot write sm120_attn_tma"):
        kernels.get(CONFIG)
    assert loaded == ["compiled"]
