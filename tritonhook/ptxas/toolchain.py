"""The assembler and the disassembler: find them, install ptxas by version, run them, survive their crashes.

The only file that starts subprocesses of NVIDIA's tools.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.cubin.sass import INSTRUCTION_BYTES, Sass, parse_nvdisasm
from tritonhook.errors import ToolError
from tritonhook.ptx.module import Ptx

DEFAULT_ARGUMENTS = ("-v", "-lineinfo")
ASSEMBLE_TIMEOUT_S = 600.0
# ptxas is not deterministic for some sm_10x kernels: one run is one draw. Limits of asking it again, with its memory at
# random places: so many runs with one code each, and it is steady on this kernel; and the most there are.
STEADY_RUNS = 8
MAX_RUNS = 24
_LARGE_BYTES = 1 << 20
_VERSION = re.compile(r"\bV(\d+\.\d+\.\d+)")
_SPILLS = re.compile(
    r"Function properties for (\S+)\s+\d+ bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program: where it is, its version ("12.8.93"), and which source offered it."""

    path: Path
    version: str
    source: str


@dataclass(frozen=True, slots=True)
class Assembled:
    """A cubin that ptxas made. `log` is what `-v` printed; `command` repeats the run."""

    cubin: Cubin
    log: str
    command: str


@dataclass(frozen=True, slots=True)
class Crash:
    """ptxas did not make a cubin.

    signal: the name of the signal that ended it, e.g. "SIGSEGV"; None if it exited by itself with
    `returncode`, which means that it rejected the PTX. timeout: it was stopped after the time limit.
    """

    tool: Tool
    ptx: Ptx
    command: str
    returncode: int
    signal: str | None
    stderr: str
    timeout: bool = False

    @property
    def summary(self) -> str:
        """One sentence with the version and the cause."""
        if self.timeout:
            return f"ptxas {self.tool.version} did not finish in time"
        if self.signal:
            return f"ptxas {self.tool.version} died with {self.signal}"
        first = next((line for line in self.stderr.splitlines() if "error" in line or "fatal" in line), "")
        remedy = "; use a newer one, e.g. `tritonhook ptxas add 13.5.37`" if "Unsupported .version" in first else ""
        return f"ptxas {self.tool.version} rejected the PTX (exit {self.returncode}): {first.strip()}{remedy}"


class AssembleError(ToolError):
    """ptxas made no cubin where one was needed. `crash` has the details."""

    def __init__(self, crash: Crash) -> None:
        super().__init__(f"{crash.summary}\n  repeat with: {crash.command}")
        self.crash = crash


@dataclass(frozen=True, slots=True)
class Toolchain:
    """One ptxas and one nvdisasm, used for both sides of every comparison."""

    ptxas: Tool
    nvdisasm: Tool

    def assemble(
        self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS, timeout_s: float = ASSEMBLE_TIMEOUT_S
    ) -> Assembled | Crash:
        """Assemble a module. The target is the PTX's own unless `arguments` name one."""
        return assemble(self.ptxas, ptx, arguments, timeout_s)

    def assemble_or_raise(self, ptx: Ptx, arguments: Sequence[str] = DEFAULT_ARGUMENTS) -> Assembled:
        """As assemble; raises AssembleError instead of returning a Crash."""
        result = self.assemble(ptx, arguments)
        if isinstance(result, Crash):
            raise AssembleError(result)
        return result

    def disassemble(self, *cubins: Cubin) -> list[dict[str, Sass]]:
        """The code of each cubin by kernel, disassembled side by side. Raises ToolError or CubinError."""
        with ThreadPoolExecutor(max_workers=len(cubins) or 1) as pool:
            outputs = list(pool.map(lambda cubin: run_nvdisasm(self.nvdisasm, cubin.data), cubins))
        return [
            parse_nvdisasm(output, {k: cubin.text(k) for k in cubin.kernels}, cubin.indirect_targets or {})
            for cubin, output in zip(cubins, outputs, strict=True)
        ]


def assemble(
    ptxas: Tool,
    ptx: Ptx,
    arguments: Sequence[str],
    timeout_s: float = ASSEMBLE_TIMEOUT_S,
    fixed_layout: bool = True,
) -> Assembled | Crash:
    """Run ptxas on a module in a private folder; nothing is left behind.

    fixed_layout: without address-space randomisation, where the system allows it.
    """
    if not os.access(ptxas.path, os.X_OK):
        raise ToolError(f"{ptxas.path}: not an executable file; see `tritonhook ptxas list`")
    options = complete_options(arguments, ptx)
    with tempfile.TemporaryDirectory(prefix="tritonhook-") as folder:
        source, output = Path(folder, "kernel.ptx"), Path(folder, "kernel.cubin")
        _write(source, ptx.text.encode())
        program = [*(fixed_layout_prefix() if fixed_layout else ()), str(ptxas.path), *options]
        command = [*program, str(source), "-o", str(output)]
        shown = shlex.join([*program, "kernel.ptx", "-o", "kernel.cubin"])
        done, timed_out = _run(command, timeout_s)
        if timed_out or done.returncode or not output.exists():
            ended_by = signal_name(done.returncode)
            stderr = (done.stderr + done.stdout).decode("utf-8", "replace").replace(f"{folder}/", "")
            return Crash(ptxas, ptx, shown, done.returncode, ended_by, stderr, timed_out)
        log = done.stderr.decode("utf-8", "replace")
        cubin = Cubin.from_bytes(output.read_bytes(), f"output of ptxas {ptxas.version}")
    return Assembled(cubin.with_spills(parse_spills(log)), log, shown)


def complete_options(arguments: Sequence[str], ptx: Ptx | str) -> list[str]:
    """`arguments`, with the module's own target where they name none, and with -v, whose log tells the spills."""
    options = list(arguments)
    if not any(option.startswith(("--gpu-name", "-gpu-name", "-arch")) for option in options):
        options.append(f"--gpu-name={(Ptx(ptx) if isinstance(ptx, str) else ptx).target}")
    if not {"-v", "--verbose"} & set(options):
        options.append("-v")
    return options


@functools.lru_cache(maxsize=1)
def fixed_layout_prefix() -> tuple[str, ...]:
    """`setarch -R`, where it works: it runs a program without address-space randomisation.

    ptxas is not deterministic: for some sm_100a kernels its choices depend on addresses, and the same PTX
    gives one of several codes (seen with 12.9.86 and 13.0.88). A fixed layout removes most of that.
    Containers often forbid it; then ptxas runs as it is.
    """
    setarch = shutil.which("setarch")
    if setarch is None:
        return ()
    prefix = (setarch, "-R")
    try:
        works = subprocess.run([*prefix, "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        works = False
    return prefix if works else ()


def parse_spills(log: str) -> dict[str, tuple[int, int]]:
    """Spill bytes (stores, loads) per function, from the log of `ptxas -v`."""
    return {name: (int(stores), int(loads)) for name, stores, loads in _SPILLS.findall(log)}


def signal_name(returncode: int) -> str | None:
    """The signal behind a return code, also where a shell in between reported it as 128 + n."""
    number = -returncode if returncode < 0 else returncode - 128 if 128 < returncode < 192 else 0
    try:
        return signal.Signals(number).name if number else None
    except ValueError:
        return None


def run_nvdisasm(nvdisasm: Tool, cubin: bytes) -> bytes:
    """The JSON that nvdisasm prints for an image."""
    with tempfile.TemporaryDirectory(prefix="tritonhook-") as folder:
        path = Path(folder, "kernel.cubin")
        _write(path, cubin)
        done, timed_out = _run([str(nvdisasm.path), "-json", str(path)], ASSEMBLE_TIMEOUT_S)
    if timed_out or done.returncode or not done.stdout:
        reason = "no output" if not done.returncode else f"exit {done.returncode}"
        detail = done.stderr.decode("utf-8", "replace").strip()
        raise ToolError(f"nvdisasm {nvdisasm.version} could not read the cubin ({reason}): {detail}")
    return done.stdout


def disassemble_raw(nvdisasm: Tool, arch: str, codes: Sequence[bytes]) -> list[tuple[str, ...]]:
    """The opcodes of pieces of code for one target, all in one run of nvdisasm. Raises ToolError."""
    if not codes:
        return []
    with tempfile.TemporaryDirectory(prefix="tritonhook-") as folder:
        path = Path(folder, "code.bin")
        _write(path, b"".join(codes))
        command = [str(nvdisasm.path), "-json", "--binary", arch.replace("sm_", "SM"), str(path)]
        done, timed_out = _run(command, ASSEMBLE_TIMEOUT_S)
    try:
        opcodes = [i["opcode"] for f in json.loads(done.stdout)[1] for i in f["sass-instructions"]]
        if timed_out or sum(map(len, codes)) != len(opcodes) * INSTRUCTION_BYTES:
            raise ValueError(f"{len(opcodes)} instructions")
    except (ValueError, KeyError, TypeError, IndexError) as error:
        detail = done.stderr.decode("utf-8", "replace").strip() or str(error)
        raise ToolError(
            f"nvdisasm {nvdisasm.version} could not read code for {arch} ({detail}); "
            "`pip install -U nvidia-cuda-nvdisasm` brings one that knows newer targets"
        ) from None
    pieces, start = [], 0
    for code in codes:
        end = start + len(code) // INSTRUCTION_BYTES
        pieces.append(tuple(opcodes[start:end]))
        start = end
    return pieces


@functools.lru_cache(maxsize=64)
def targets(ptxas: Tool) -> tuple[str, ...]:
    """The architectures that a ptxas knows by its own account, e.g. "sm_120a", in ascending order."""
    done, _ = _run([str(ptxas.path), "--help"], 30.0)
    option = done.stdout.decode("utf-8", "replace").partition("--gpu-name")[2].partition("\n--")[0]
    found = set(re.findall(r"'(sm_\d+[a-z]?)'", option))
    if not found:
        raise ToolError(f"{ptxas.path}: its --help names no targets for --gpu-name; is it ptxas?")
    return tuple(sorted(found, key=target_key))


def target_key(arch: str) -> tuple[int, str]:
    """To sort by: sm_90, sm_90a, sm_100, sm_100a, sm_100f."""
    match = re.fullmatch(r"sm_(\d+)([a-z]?)", arch)
    if match is None:
        raise ToolError(f"{arch!r} is no target; write one such as sm_120a")
    return int(match[1]), match[2]


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ToolError(
            f"{path}: cannot write a temporary file: {error.strerror}; set TMPDIR to a folder with room"
        ) from None


def _environment() -> dict[str, str]:
    """For our own calls: a ptxas that is our wrapper (ptxas_shim.py) is to keep nothing of them."""
    return {**os.environ, "TRITONHOOK_SHIM": "off"}


def _run(command: list[str], timeout_s: float) -> tuple[subprocess.CompletedProcess[bytes], bool]:
    try:
        return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, env=_environment()), False
    except subprocess.TimeoutExpired as late:
        return subprocess.CompletedProcess(command, -signal.SIGKILL, late.stdout or b"", late.stderr or b""), True
    except OSError as error:
        raise ToolError(f"{command[0]}: cannot run: {error.strerror}") from None


# --- finding -------------------------------------------------------------------------------------


def find_ptxas(wanted: str | os.PathLike[str] | None = None) -> Tool:
    """The ptxas to use.

    wanted: a version ("12.8.93"), a path, or None for $TRITONHOOK_PTXAS, else the newest there is.
    Raises ToolError with everything that was tried.
    """
    if isinstance(wanted, os.PathLike):
        return _probe_or_raise(Path(wanted), "given")
    if not isinstance(wanted, (str, type(None))):
        raise ToolError(f"{wanted!r}: no ptxas; give a path, or a version as text such as '12.8.93'")
    wanted = wanted or os.environ.get("TRITONHOOK_PTXAS") or None
    if wanted and not re.fullmatch(r"\d+(\.\d+)*", wanted):
        return _probe_or_raise(Path(wanted), "given")
    tried: list[str] = []
    tools = list(available_ptxas(tried))
    if wanted:
        tried += [f"{tool.path}: version {tool.version}" for tool in tools]
        tools = [tool for tool in tools if tool.version == wanted or tool.version.startswith(f"{wanted}.")]
    if not tools:
        what = f"ptxas {wanted}" if wanted else "ptxas"
        partial = wanted is not None and wanted.count(".") != 2
        remedy = f"`tritonhook ptxas add {'12.8.93' if wanted is None or partial else wanted}`"
        get = f"get one by its whole version, as with {remedy}" if partial else f"get it with {remedy}"
        raise ToolError(f"{what}: not found; {get}. Tried:\n  " + "\n  ".join(tried or ["nothing"]))
    return max(tools, key=lambda tool: version_key(tool.version))


def find_nvdisasm() -> Tool:
    """The nvdisasm to use: $TRITONHOOK_NVDISASM, the installed wheel, Triton's, PATH, the CUDA toolkit."""
    given = os.environ.get("TRITONHOOK_NVDISASM")
    if given:
        return _probe_or_raise(Path(given), "$TRITONHOOK_NVDISASM")
    tried: list[str] = []
    for path, source in _candidates("nvdisasm"):
        tool = _probe(path, source, tried)
        if tool:
            return tool
    raise ToolError(
        "nvdisasm: not found; `pip install nvidia-cuda-nvdisasm`. Tried:\n  " + "\n  ".join(tried or ["nothing"])
    )


def find_toolchain(ptxas: str | os.PathLike[str] | None = None) -> Toolchain:
    """The ptxas `find_ptxas` finds, with nvdisasm."""
    return Toolchain(find_ptxas(ptxas), find_nvdisasm())


def available_ptxas(tried: list[str] | None = None) -> Iterator[Tool]:
    """Every usable ptxas: installed with `ptxas add`, Triton's, on PATH, in the CUDA toolkit, in wheels."""
    seen: set[Path] = set()
    for path, source in [*_installed(tried), *_candidates("ptxas"), *_candidates("ptxas-blackwell")]:
        real = path.resolve()
        if real not in seen and (tool := _probe(path, source, tried)):
            seen.add(real)
            yield tool


def _candidates(program: str) -> Iterator[tuple[Path, str]]:
    for folder, source in [*_wheel_folders(), *_triton_folders(), *_toolkit_folders()]:
        yield folder / program, source
    if found := shutil.which(program):
        yield Path(found), "PATH"


def _wheel_folders() -> Iterator[tuple[Path, str]]:
    for entry in sys.path:
        for folder in ("nvidia/cu13/bin", "nvidia/cuda_nvdisasm/bin", "nvidia/cuda_nvcc/bin"):
            path = Path(entry or ".", folder)
            if path.is_dir():
                yield path, "wheel"


def _triton_folders() -> Iterator[tuple[Path, str]]:
    from importlib.util import find_spec

    spec = find_spec("triton")  # finds the package without importing it
    for location in (spec.submodule_search_locations or []) if spec else []:
        yield Path(location, "backends", "nvidia", "bin"), "Triton"


def _toolkit_folders() -> Iterator[tuple[Path, str]]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if value := os.environ.get(variable):
            yield Path(value, "bin"), f"${variable}"
    yield Path("/usr/local/cuda/bin"), "CUDA toolkit"


def _probe(path: Path, source: str, tried: list[str] | None = None) -> Tool | None:
    reason = _probe_cached(path, source)
    if isinstance(reason, Tool):
        return reason
    if tried is not None:
        tried.append(f"{path}: {reason}")
    return None


def _probe_or_raise(path: Path, source: str) -> Tool:
    result = _probe_cached(path, source)
    if isinstance(result, str):
        raise ToolError(f"{path}: {result}; give a ptxas/nvdisasm binary or a version such as 12.8.93")
    return result


@functools.lru_cache(maxsize=256)
def _probe_cached(path: Path, source: str) -> Tool | str:
    return _inspect(path, source)


def _inspect(path: Path, source: str) -> Tool | str:
    """The tool at `path`, or why there is none."""
    if not path.exists():
        return "no such file"
    if not os.access(path, os.X_OK) or path.is_dir():
        return "not an executable file"
    try:
        done = subprocess.run([str(path), "--version"], capture_output=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot run: {error}"
    match = _VERSION.search(done.stdout.decode("utf-8", "replace"))
    return Tool(path, match[1], source) if match else "prints no version"


# --- installing ----------------------------------------------------------------------------------


def tools_folder() -> Path:
    """Where `ptxas add` keeps binaries: $TRITONHOOK_TOOLS or the user's cache folder."""
    import platformdirs

    given = os.environ.get("TRITONHOOK_TOOLS")
    return Path(given) if given else Path(platformdirs.user_cache_dir("tritonhook"), "tools")


def _installed(tried: list[str] | None = None) -> Iterator[tuple[Path, str]]:
    """The binaries `ptxas add` kept that are still what it kept; of the others `tried` says why not."""
    for folder in sorted(tools_folder().glob("ptxas-*")):
        reason = _changed_since_added(folder)
        if reason is None:
            yield folder / "ptxas", "added"
        elif tried is not None:
            remedy = f"`tritonhook ptxas add {folder.name.removeprefix('ptxas-')}` fetches it again"
            tried.append(f"{folder / 'ptxas'}: not used: {reason}; {remedy}")


def _changed_since_added(folder: Path) -> str | None:
    """Why the binary in this folder is not the one that was added; None if it is. It is hashed only if its
    time has changed, as every start would have to hash 30 MB for each version."""
    binary = folder / "ptxas"
    try:
        note = json.loads((folder / "tool.json").read_text())
        size, mtime_ns, sha256 = note.get("size"), note.get("mtime_ns"), note["sha256"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"its tool.json cannot be read ({type(error).__name__}: {error})"
    try:
        stat = binary.stat()
        if size is not None and stat.st_size != size:
            return f"it has {stat.st_size} bytes, and had {size} when it was added"
        if stat.st_mtime_ns != mtime_ns and _sha256(binary, stat.st_size, stat.st_mtime_ns) != sha256:
            return "its hash is not the one it had when it was added"
    except OSError as error:
        return error.strerror
    return None


def binary_sha256(binary: Path) -> str:
    """The hash of a program's file. Raises ToolError."""
    try:
        stat = binary.stat()
        return _sha256(binary, stat.st_size, stat.st_mtime_ns)
    except OSError as error:
        raise ToolError(f"{binary}: {error.strerror}; see `tritonhook ptxas list`") from None


@functools.lru_cache(maxsize=64)
def _sha256(binary: Path, size: int, mtime_ns: int) -> str:
    """Of a file of this size and time: what has another is hashed anew. Large files, 20 ms and more, are hashed once
    per user: a note under their identity (path, inode, size, times of change) keeps the hash."""
    if size < _LARGE_BYTES:
        return hashlib.sha256(binary.read_bytes()).hexdigest()
    import platformdirs

    stat = binary.stat()
    identity = f"{binary.resolve()}:{stat.st_dev}:{stat.st_ino}:{size}:{mtime_ns}:{stat.st_ctime_ns}"
    name = hashlib.sha256(identity.encode()).hexdigest()
    note = Path(platformdirs.user_cache_dir("tritonhook"), "hashes", name)
    with suppress(OSError, ValueError):
        noted = note.read_text()
        if re.fullmatch(r"[0-9a-f]{64}", noted):
            return noted
    digest = hashlib.sha256(binary.read_bytes()).hexdigest()
    beside = note.with_suffix(f".{os.getpid()}")
    with suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(digest)
        beside.replace(note)
    return digest


def package_of(version: str) -> str:
    """The package whose wheel of this version holds ptxas, as a pip requirement."""
    major = version.partition(".")[0]
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ToolError(f"{version!r} is not a full version; give one such as 12.8.93 or 13.5.37")
    return f"nvidia-cuda-nvcc{'-cu' + major if int(major) < 13 else ''}=={version}"


def add_ptxas(version: str) -> Tool:
    """Fetch the wheel of one ptxas version with pip and keep only the binary, its hash checked.

    pip checks the wheel against the index, this function the binary against the wheel's RECORD.
    Raises ToolError if there is no such version or something does not fit; nothing half-written stays.
    """
    requirement = package_of(version)
    folder = tools_folder() / f"ptxas-{version}"
    if _hash_fits(folder) and isinstance(existing := _probe_cached(folder / "ptxas", "added"), Tool):
        return existing
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".adding-", dir=folder.parent) as scratch:
            wheel = _download(requirement, Path(scratch))
            staged = Path(scratch, "staged")
            _extract(wheel, staged, requirement)
            _check_version(staged / "ptxas", version, requirement)
            shutil.rmtree(folder, ignore_errors=True)
            staged.replace(folder)
    except zipfile.BadZipFile as error:
        raise ToolError(f"{requirement}: what pip fetched is no wheel ({error}); nothing was kept") from None
    except OSError as error:
        raise ToolError(f"{folder}: cannot keep ptxas there: {error.strerror}; set TRITONHOOK_TOOLS") from None
    _probe_cached.cache_clear()
    return _probe_or_raise(folder / "ptxas", "added")


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "-d", str(folder), requirement]
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise ToolError(f"{requirement}: cannot run pip: {command[0]!r}: {error.strerror}") from None
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        reason = _pips_reason(done.stderr.decode("utf-8", "replace")) or f"pip exited with {done.returncode}"
        raise ToolError(f"{requirement}: pip could not fetch it: {reason}")
    return wheels[0]


def _pips_reason(stderr: str) -> str:
    """What pip says went wrong: its errors, and why it reached no index, which it only warns of; without
    errors, or with a traceback, its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")]
    if not errors or "ERROR: Exception:" in errors:
        return lines[-1] if lines else ""
    broken = [line for line in lines if "connection broken by" in line]
    return "\n  ".join([*errors, *broken[-1:]])


def _extract(wheel: Path, staged: Path, requirement: str) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        member = next((name for name in names if name.endswith("/bin/ptxas")), None)
        record = next((name for name in names if name.endswith(".dist-info/RECORD")), None)
        if member is None or record is None:
            raise ToolError(f"{requirement}: its wheel holds no bin/ptxas")
        data = archive.read(member)
        expected = _recorded_hash(archive.read(record).decode(), member)
    digest = hashlib.sha256(data)
    if expected is None:
        raise ToolError(f"{requirement}: the wheel's RECORD states no hash for ptxas to check; nothing was kept")
    if expected != _urlsafe(digest.digest()):
        raise ToolError(f"{requirement}: ptxas does not have the hash that the wheel's RECORD states; nothing was kept")
    staged.mkdir()
    binary = staged / "ptxas"
    binary.write_bytes(data)
    binary.chmod(0o755)
    stat = binary.stat()
    note = {
        "format": 1,
        "requirement": requirement,
        "sha256": digest.hexdigest(),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
    }
    (staged / "tool.json").write_text(json.dumps(note, indent=1))


def _check_version(binary: Path, version: str, requirement: str) -> None:
    found = _inspect(binary, "added")
    if isinstance(found, str) or found.version != version:
        said = found if isinstance(found, str) else f"version {found.version}"
        raise ToolError(f"{requirement}: its ptxas does not fit ({said}); nothing was kept")


def _recorded_hash(record: str, member: str) -> str | None:
    for line in record.splitlines():
        path, _, rest = line.rpartition(",")[0].rpartition(",")
        if path == member and rest.startswith("sha256="):
            return rest.removeprefix("sha256=")
    return None


def _urlsafe(digest: bytes) -> str:
    import base64

    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _hash_fits(folder: Path) -> bool:
    try:
        note = json.loads((folder / "tool.json").read_text())
        return bool(hashlib.sha256((folder / "ptxas").read_bytes()).hexdigest() == note["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
