"""Who may import whom: errors <- values <- pure functions <- edges, reports <- cli. Read from the source."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tritonhook"
LAYERS = {
    0: {"errors", "notebook"},
    1: {
        *("ptx", "cubin", "sass", "stages", "after_import", "ptx_code", "gpus", "timeline", "facts", "outcome"),
        *("measurement", "fatbin", "opcodes", "launch", "versions"),
    },
    2: {
        *("rename", "diff", "microkernel", "tma", "footprint", "families", "retarget", "names", "minimise"),
        *("capabilities", "capability_probes", "layout", "lineinfo", "alignment", "wrong_code"),
    },
    3: {
        *("toolchain", "store", "triton_compile", "triton_slots", "ptx_capture", "ab", "published", "startup"),
        *("ptxas_shim", "ptxas_capture", "ptxas_command"),
        *("triton_autotune", "inductor_capture", "pth"),
        *("memwatch", "cuda_driver", "nvml", "calibrate"),
        *("sandbox", "result_cache", "sweep", "probe", "survey"),
        *("gpu_timer", "ab_plan", "ab_variant", "ab_worker", "ab_run", "outputs", "cute_capture", "subject"),
        *("inductor_tuning", "launch_capture", "launch_replay", "gpu_clock", "ab_images"),
    },
    4: {"report"},
    5: {"cli", "__main__"},
}
LAYER_OF = {name: layer for layer, names in LAYERS.items() for name in names}
# Within a layer only these: values that contain values, functions of functions, and edges that the design names.
WITHIN = {
    "stages": {"ptx"},
    "ptx_code": {"ptx"},
    "timeline": {"gpus"},
    "memwatch": {"cuda_driver", "nvml"},
    "calibrate": {"cuda_driver", "toolchain"},
    "triton_slots": {"triton_compile"},
    "ptx_capture": {
        *("inductor_capture", "store", "toolchain", "triton_autotune", "triton_compile", "triton_slots"),
        *("cute_capture", "launch_capture"),
    },
    "ab": {"toolchain"},
    "gpu_timer": {"nvml", "gpu_clock"},
    "gpu_clock": {"cuda_driver"},
    "launch_replay": {"cuda_driver", "store"},
    "ab_images": {"ab", "ab_plan", "toolchain", "store", "ptx_capture"},
    "ab_variant": {
        *("ab_plan", "inductor_tuning", "outputs", "ptx_capture", "store", "subject"),
        *("triton_autotune", "triton_compile"),
    },
    "ab_worker": {"ab_plan", "ab_variant", "gpu_timer", "launch_replay", "outputs", "store"},
    "ab_run": {"ab_plan"},
    "published": {"ab", "toolchain"},
    "startup": {"inductor_capture", "ptx_capture", "ptxas_shim", "memwatch"},
    "ptxas_shim": {"store", "toolchain"},
    "ptxas_capture": {"ptxas_command", "store", "toolchain"},
    "pth": {"startup"},
    "facts": {"cubin"},
    "outcome": {"facts"},
    "names": {"rename"},
    "probe": {"sweep", "toolchain"},
    "sweep": {"sandbox", "result_cache", "toolchain"},
    "survey": {"probe", "sweep", "toolchain"},
    "capability_probes": {"capabilities", "families"},
    "__main__": {"cli"},
}
HEAVY = {"triton", "torch", "elftools", "rapidfuzz", "rich", "platformdirs", "pynvml", "cutlass", "jinja2"}
# The only modules whose job is to use these at once; everybody else imports them inside a function.
HEAVY_AT_TOP = {("diff", "rapidfuzz"), ("alignment", "rapidfuzz"), ("report", "rich")}


def room(path: Path) -> str:
    """The module's name in LAYERS: packages count as one room."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def sources() -> list[Path]:
    private = ("_startup", "_shim")  # programs, not modules: what starts in a child process, and the ptxas wrapper
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent.name not in private and p != PACKAGE / "__init__.py"]


def imported_rooms(tree: ast.Module, at_top_only: bool = False) -> set[str]:
    """First part below `tritonhook`, or the package's own name for foreign imports."""
    nodes = tree.body if at_top_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "tritonhook":
            names = [f"tritonhook.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            names = []
        for name in names:
            parts = name.split(".")
            found.add(parts[1] if parts[0] == "tritonhook" and len(parts) > 1 else parts[0])
    return found


def violations(name: str, tree: ast.Module) -> list[str]:
    wrong = []
    for other in imported_rooms(tree) & LAYER_OF.keys():
        if other == name or LAYER_OF[other] < LAYER_OF[name] or other in WITHIN.get(name, ()):
            continue
        wrong.append(f"{name} imports {other}")
    for other in imported_rooms(tree, at_top_only=True) & HEAVY:
        if (name, other) not in HEAVY_AT_TOP:
            wrong.append(f"{name} imports {other} at its top; import it inside the function that needs it")
    return wrong


@pytest.mark.parametrize("path", sources(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_to_the_left(path: Path) -> None:
    assert room(path) in LAYER_OF, f"{path.name} has no layer; add it to LAYERS"
    assert violations(room(path), ast.parse(path.read_text())) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("ptx", "from tritonhook.toolchain import Tool"),
        ("diff", "def f():\n    from tritonhook.cli import main"),
        ("errors", "from tritonhook import ptx"),
        ("store", "from tritonhook.toolchain import Tool"),
        ("rename", "import triton"),
    ],
)
def test_an_import_to_the_right_is_found(name: str, source: str) -> None:
    assert violations(name, ast.parse(source))


def test_kernel_packages_and_tritonhook_do_not_know_each_other() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert not {"gluon_kernels", "sm120_attn"} & imported_rooms(ast.parse(path.read_text())), path
    kernels = [*(PACKAGE.parent / "gluon_kernels").rglob("*.py"), *(PACKAGE.parent / "sm120_attn").rglob("*.py")]
    for path in kernels:
        tree = ast.parse(path.read_text())
        names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        names |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        assert not any(name.split(".")[0] == "tritonhook" for name in names), path


def test_no_two_test_modules_have_the_same_name() -> None:
    """pytest imports them by that name, and cannot collect both where neither is skipped (torch is installed)."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py")]
    assert sorted(set(names)) == sorted(names)
