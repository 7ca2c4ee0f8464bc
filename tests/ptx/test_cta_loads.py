"""ClusterToCta: which loads are rewritten, which stay and why, and what ptxas makes of both forms."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from ptx_checks import Case, cases, changed
from work import is_linear

from tritonhook._util.versions import version_key
from tritonhook.cubin.image import Cubin
from tritonhook.ptx.cta_loads import ClusterToCta, sites
from tritonhook.ptx.module import Ptx
from tritonhook.ptxas.tool import available_ptxas, targets
from tritonhook.ptxas.toolchain import Assembled, assemble
from tritonhook.rename import Rename, Rewrite, Rewrites

FIX = ClusterToCta()
LOAD = (
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r3, %r3}], [%r1];"
)
HEAD = """.version {version}
.target sm_120a
.address_size 64
.extern .shared .align 128 .b8 smem[];
{head}
.visible .entry load(.param .u64 load_param_0, .param .u32 load_param_1)
{before}
{{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [load_param_0]; ld.param.u32 %r9, [load_param_1];
    mov.u32 %r1, smem; add.u32 %r2, %r1, 128; mov.u32 %r3, 0;
"""
CASES = cases("cta_loads")


def module(body: str = LOAD, *, before: str = "", head: str = "", version: str = "8.8") -> Ptx:
    """A kernel with these lines. %r1: the barrier, %r2: the destination, %r3: a coordinate."""
    return Ptx(HEAD.format(version=version, head=head, before=before) + f"{body}\nret;\n}}\n")


def refusal(ptx: Ptx) -> str | None:
    (site,) = sites(ptx)
    rewritten = FIX.apply(ptx)
    assert (rewritten is ptx) == (site.refusal is not None)
    return site.refusal


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_load_is_rewritten_where_its_addresses_are_proved_to_be_the_ctas_own(case: Case) -> None:
    ptx = module(case.ptx.replace("LOAD", LOAD))
    after, above = FIX.apply(ptx), HEAD.format(version="", head="", before="").count("\n")
    found = changed(ptx.text, after.text) | {site.line: site.refusal for site in sites(ptx) if site.refusal}
    case.compare({line - above: what for line, what in found.items()})
    assert FIX.apply(after) is after


def test_ptxas_calls_the_driver_for_no_load_that_was_rewritten() -> None:
    """Each form of load. A call of the driver takes a stack."""
    (tool,) = sorted(available_ptxas(), key=lambda tool: version_key(tool.version))[-1:]
    for case in (case for case in CASES if "shared::cta" in case.checks.get(case.ptx.count("\n") + 1, "")):
        ptx = module(case.ptx.replace("LOAD", LOAD))
        made = [assemble(tool, side, ()) for side in (ptx, FIX.apply(ptx))]
        assert all(isinstance(m, Assembled) for m in made), made
        syscalls = [m.cubin.resources["load"].syscalls for m in made]  # type: ignore[union-attr]
        assert len(syscalls[0]) == 1 and syscalls[1] == (), case.name


def test_one_token_changes_and_nothing_else() -> None:
    before = module(f"// shared::cluster.global stays in a comment\n    {LOAD} /* .shared::cluster */")
    after = FIX.apply(before)
    assert after.text == before.text.replace("2d.shared::cluster.global.tile", "2d.shared::cta.global.tile")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"before": ".explicitcluster .reqnctapercluster 2, 1, 1"}, "clusters of several CTAs"),
        ({"before": ".explicitcluster"}, "launched in clusters"),
        ({"before": ".reqnctapercluster 1, 1, 1"}, ""),
        ({"version": "8.5"}, "PTX ISA 8.5"),
        ({"body": f"add.u32 %r2, %r1, 0x{1:068x}; {LOAD}"}, ""),
        ({"body": f"add.u32 %r2, %r1, {'9' * 5000}; {LOAD}"}, "bits of the CTA's rank"),
        ({"body": f"mov.u32 %r2, %r{'9' * 5000}; {LOAD}"}, "neither a register"),
        ({"head": ".func other()\n{\n .reg .b32 %r<4>;\n ld.shared.u32 %r2, [smem];\n ret;\n}"}, ""),  # other registers
    ],
    ids=range(8),
)
def test_the_module_counts_and_numbers_of_any_length(options: dict[str, str], reason: str) -> None:
    found = refusal(module(**options))
    assert (found is None) == (not reason) and reason in (found or "")


@pytest.mark.parametrize(
    ("parameter", "body"),
    [
        (".reg .b32 q", "mov.u32 %r2, q;"),
        (".reg .b32 q", "ld.shared.u32 q, [smem]; mov.u32 %r2, q;"),  # `shared` in an opcode declares nothing
        (".reg .b32 smem", "mov.u32 %r2, smem;"),  # hides the symbol
        (".reg .b32 %tid_off", "add.u32 %r2, %r1, %tid_off;"),
        (".param .b32 q", "ld.param.u32 %r2, [q];"),
    ],
)
def test_what_a_function_is_passed_is_not_its_own(parameter: str, body: str) -> None:
    code = f".reg .b32 %r<9>; .reg .b64 %rd<9>; mov.u32 %r1, other; mov.u32 %r3, 0; mov.u64 %rd1, 0; {body}"
    head = f".extern .shared .align 128 .b8 other[];\n.func f({parameter})\n{{\n {code}\n {LOAD}\n ret;\n}}"
    found = refusal(module("ret;", head=head))
    assert found is not None and "its destination is not proved" in found, found


def test_one_refusal_leaves_the_other_loads() -> None:
    ptx = module(f"{LOAD}\n{LOAD.replace('[%r2]', '[%r9]')}")
    good, bad = sites(ptx)
    assert (good.refusal, bad.refusal is None) == (None, False)
    summary, why = FIX.remarks(ptx)
    assert summary == "load: 1 TMA load to .shared::cta"
    assert f"load, line {bad.line}:" in why and "ld.param.u32" in why
    assert ptx.text.splitlines()[bad.line - 1].strip().startswith("cp.async")


# --- as a rewrite --------------------------------------------------------------------------------


def test_it_is_a_rewrite_with_a_constant_key() -> None:
    assert isinstance(FIX, Rewrite)
    assert ClusterToCta().key == FIX.key == "tma-cta-1"
    both = Rewrites((Rename(prefix="a_"), FIX))
    changed = both.apply(module())
    assert changed.entries == ("a_load",)
    assert "shared::cta.global" in changed.text
    assert Rewrites((FIX, Rename(prefix="a_"))).apply(module()) == changed
    assert both.without_renames == Rewrites((FIX,))
    assert both.key != Rewrites((FIX,)).key != Rewrites().key


# --- what Triton emits ---------------------------------------------------------------------------


def triton_cases() -> list[str]:
    pytest.importorskip("triton", minversion="3.6")
    from tma_kernels import CASES

    return list(CASES)


@pytest.mark.parametrize("arch", [pytest.param(120, marks=pytest.mark.nightly), 121])
def test_tritons_kernels_lose_their_syscalls_under_every_ptxas(arch: int, triton_cache) -> None:
    names = triton_cases()
    import triton
    from tma_kernels import CASES, compile_tma

    if tuple(map(int, triton.__version__.split(".")[:2])) > (3, 6):
        pytest.skip("Triton 3.7 and newer emits .shared::cta itself")
    tools = {tool.version: tool for tool in available_ptxas() if f"sm_{arch}a" in targets(tool)}
    done = 0
    for name in names if arch == 120 else names[:1]:
        kernel, constants, options = CASES[name]
        ptx = Ptx(compile_tma(kernel, constants, options, arch).asm["ptx"])
        assert ptx.target == f"sm_{arch}a"
        assert sites(ptx) and all(site.refusal is None for site in sites(ptx)), name
        rewritten = FIX.apply(ptx)
        for version, tool in tools.items():
            if version.startswith("12.8"):  # reads PTX up to 8.7
                ptx, rewritten = (Ptx(p.text.replace(".version 8.8", ".version 8.7")) for p in (ptx, rewritten))
            a, b = (made(tool, side) for side in (ptx, rewritten))
            before, after = a.resources[kernel.__name__], b.resources[kernel.__name__]
            assert before.syscalls and not after.syscalls, (name, version)
            assert (before.stack, after.stack) == (8, 0), (name, version)
            assert len(b.text(kernel.__name__)) < len(a.text(kernel.__name__)), (name, version)
            done += 1
    assert done >= 1


def made(tool, ptx: Ptx) -> Cubin:
    result = assemble(tool, ptx, ("-O3",))
    assert isinstance(result, Assembled), result.summary
    return result.cubin


def test_both_forms_are_the_same_code_on_sm_90a(tools, triton_cache) -> None:
    triton_cases()
    from tma_kernels import CASES, compile_tma

    kernel, constants, options = CASES["matmul w4 s3"]
    ptx = Ptx(compile_tma(kernel, constants, options, 90).asm["ptx"])
    rewritten = FIX.apply(ptx)
    if "shared::cta.global" in ptx.text:
        pytest.skip("Triton 3.7 and newer emits .shared::cta itself")
    assert rewritten is not ptx
    assert made(tools.ptxas, ptx).text("matmul") == made(tools.ptxas, rewritten).text("matmul")


def test_a_plain_kernel_is_left_as_it_is(triton_cache) -> None:
    triton_cases()
    from tma_kernels import compile_tma, copy_plain

    ptx = Ptx(compile_tma(copy_plain, {"BLOCK_M": 64, "BLOCK_N": 64}).asm["ptx"])
    assert FIX.apply(ptx) is ptx
    assert FIX.remarks(ptx) == ()


def test_the_work_grows_as_the_module() -> None:
    def work(loads: int) -> Callable[[], object]:
        body = f"add.u32 %r2, %r2, 128; {LOAD}\n" * loads + "".join(f"L{n}: " for n in range(loads))
        ptx = module(body)
        return lambda: sites(ptx)

    assert is_linear(work)
