"""What one timing process prepares, without a GPU: targets, the ptxas of each side, outputs, the protocol."""

import sys
from pathlib import Path

import pytest
from triton_kernels import add_kernel, compile_kernel, fresh

from tritonhook.capture.model import Stage
from tritonhook.errors import TritonHookError, UsageError
from tritonhook.ptxas.tool import available_ptxas
from tritonhook.ptxas.toolchain import assemble
from tritonhook.rename import Rename
from tritonhook.timing.images import describe_captures
from tritonhook.timing.output_check import difference, outputs_of, shaped_as
from tritonhook.timing.plan import Compiled, Plan, Prepare, Prepared
from tritonhook.timing.statistics import CANDIDATE, CONTROL, REFERENCE
from tritonhook.timing.variant import Variant, load_launch
from tritonhook.timing.worker import TimingWorker


@pytest.fixture
def target_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "given_targets.py").write_text(
        "value = 3\n"
        "def factory():\n    return lambda: 'launched by what the factory made'\n"
        "def direct():\n    return None\n"
        "def needs_more(x):\n    return x\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "given_targets"
    sys.modules.pop("given_targets", None)


def test_a_target_is_a_launch_or_makes_one(target_module: str) -> None:
    assert load_launch(f"{target_module}:factory")() == "launched by what the factory made"
    direct = load_launch(f"{target_module}:direct")
    assert direct is sys.modules[target_module].direct


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("given_targets", "MODULE:FUNCTION"),
        (":f", "MODULE:FUNCTION"),
        ("given_targets:missing", "has no 'missing'"),
        ("given_targets:value", "is a int"),
        ("no_such_module_here:f", "cannot import 'no_such_module_here'"),
    ],
)
def test_what_is_no_target_is_refused(target: str, message: str, target_module: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_launch(target)


def test_an_error_of_the_module_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_targets.py").write_text("import sys\nsys.no_such_thing\ndef f(): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(AttributeError, match="no_such_thing"):
        load_launch("broken_targets:f")


def test_outputs_are_compared() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    number, large = torch.tensor(3.0), torch.tensor([1_000_000, 5, 6])
    assert difference([number], [number.clone()], None) is None
    assert "bits" in str(difference([number], [number + 1], None))
    assert difference([number], [number + 1e-6], 1e-5) is None
    assert "differs by 9e+05" in str(difference([large], [torch.tensor([100_000, 5, 6])], 0.001))
    assert "bits" in str(difference([torch.tensor([1 + 2j])], [torch.tensor([1 + 3j])], None))
    nan = torch.tensor([1.0, float("nan")])
    assert difference([nan], [nan.clone()], None) is None and difference([nan], [torch.ones(2)], 0.1)
    assert difference([torch.ones(2)], [torch.ones(1, 2)], 0.1) and difference([number], [], 0.1)
    found = outputs_of({"a": nan, "b": [nan, (nan, None)]})
    nan += 1
    assert [float(tensor[0]) for tensor in found] == [1.0] * 3, "copies, from any nesting"


def test_a_baselines_outputs_are_compared_whatever_their_shape() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    reference = [torch.arange(8.0).reshape(4, 2)]
    (fitting,) = shaped_as([torch.arange(8.0).reshape(2, 2, 2).to(torch.float64), torch.zeros(3)], reference)
    assert difference(reference, [fitting], None) is None
    assert difference(reference, shaped_as([torch.zeros(9)], reference), 0.02) is not None


def test_sides_compile_with_their_own_ptxas_and_are_told_apart(triton_cache, tmp_path: Path) -> None:
    """Given two ptxas, one side each; then each side's cubin names its own, also when both are compiled again."""
    pytest.importorskip("triton")
    tools = {tool.version: tool for tool in available_ptxas() if tool.source == "Triton"}
    if len(tools) < 2:
        pytest.skip("needs the two ptxas versions that Triton 3.6 to 3.8 bring")
    (old, a), (new, b), *_ = sorted(tools.items())
    plan = Plan("m:f", tmp_path, candidate_ptxas=str(b.path), ptxas=str(a.path))
    sides = [Variant(REFERENCE, plan, list, ()), Variant(CANDIDATE, plan, list, ())]
    for _ in range(2):
        for side, version in zip(sides, (old, new), strict=True):
            with side.active():
                compile_kernel(fresh(add_kernel))
            (capture,) = side.session.captures
            assert capture.assembler.version == version
    (reference,), (candidate,) = (side.session.captures for side in sides)
    assert reference.artifacts[Stage.PTX] == candidate.artifacts[Stage.PTX], "nothing but ptxas differs"
    assert reference.kernel == candidate.kernel
    again = assemble(b, candidate.ptx, candidate.assembler.arguments)
    assert again.cubin.data == candidate.cubin != reference.cubin
    assert sides[0].kernels()[reference.kernel][0].registers > 0
    assert [side.compiled() for side in sides] == [Compiled((reference.kernel,), (version,)) for version in (old, new)]
    assert [side.session.out for side in sides] == [tmp_path / REFERENCE, tmp_path / CANDIDATE]


def test_the_candidates_ptxas_gets_further_options(triton_cache, tmp_path: Path) -> None:
    """Given -O0 for the candidate; then its cubin was made so, and both have cache keys of their own."""
    tool = next((tool for tool in available_ptxas() if tool.source == "Triton"), None)
    if tool is None:
        pytest.skip("needs Triton's ptxas")
    plan = Plan("m:f", tmp_path, candidate_options="-O0", ptxas=str(tool.path))
    sides = [Variant(REFERENCE, plan, list, ()), Variant(CANDIDATE, plan, list, ())]
    for _ in range(2):
        for side in sides:
            with side.active():
                compile_kernel(fresh(add_kernel))
    (reference,), (candidate,) = (side.session.captures for side in sides)
    assert reference.hash != candidate.hash
    plain = assemble(tool, candidate.ptx, reference.assembler.arguments).cubin.data
    assert plain == reference.cubin != candidate.cubin
    assert assemble(tool, candidate.ptx, (*reference.assembler.arguments, "-O0")).cubin.data == candidate.cubin


def test_the_control_gets_a_name_as_long_as_the_candidates(triton_cache, tmp_path: Path) -> None:
    rename = Rename(prefix="cutlass_")
    plan = Plan("m:f", tmp_path, rename)
    sides = [Variant(CANDIDATE, plan, list, (rename,)), Variant(CONTROL, plan, list, (plan.control,))]
    for side in sides:
        with side.active():
            compile_kernel(fresh(add_kernel))
    (candidate,), (control,) = (side.session.captures for side in sides)
    assert candidate.kernel == "cutlass_add_kernel"
    assert control.kernel == "cutlasz_add_kernel"
    assert control.rewritten_from == "add_kernel"


def test_a_kernel_that_kept_its_name_is_not_compared_with_itself(triton_cache, tmp_path: Path, tools) -> None:
    """Given a kernel that a side met under its own name, as from a cache; then the side is refused."""
    rename = Rename(prefix="cutlass_")
    plan = Plan("m:f", tmp_path, rename)
    renamed = Variant(CANDIDATE, plan, list, (rename,))
    with renamed.active():
        compile_kernel(fresh(add_kernel))
    renamed.check_names(rename)
    plain = Variant(REFERENCE, plan, list, ())
    with plain.active():
        compile_kernel(fresh(add_kernel))
    plain.check_names(None)
    plain.check_names(Rename(strip="cutlass"))
    with pytest.raises(UsageError, match="add_kernel was not renamed to cutlass_add_kernel"):
        plain.check_names(rename)
    told = describe_captures(tmp_path, ["add_kernel", "missing"], tools)
    assert told == {"add_kernel": "same code: 32 instructions, equal byte for byte"}, "by the name in the source"


def test_what_goes_wrong_in_the_users_code_is_one_sentence(tmp_path: Path) -> None:
    class Failing(TimingWorker):
        def prepare(self, plan: Plan) -> Prepared:
            raise ERRORS.pop(0)

    given = ValueError("no luck"), KeyboardInterrupt(), UsageError("m:f: no such target")
    for error, text in zip(given, ("the target failed: ValueError: no luck", "interrupted", "m:f: no"), strict=True):
        ERRORS.append(error)
        with pytest.raises(TritonHookError, match=text):
            list(Failing().carry_out(Prepare(Plan("m:f", tmp_path, candidate="m:g"))))


ERRORS: list[BaseException] = []
