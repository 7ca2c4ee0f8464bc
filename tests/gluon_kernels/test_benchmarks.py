"""The committed results, the texts and the defaults of gluon_kernels say the same."""

import json
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from gluon_kernels import bench
from gluon_kernels.bench import Row, Shape
from gluon_kernels.config_mma import PLAIN, MmaConfig, default_config
from gluon_kernels.timer import Timed
from gluon_kernels.tune import Tried, best, name_effects

MASKS = ("", " causal")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import gluon_h100

    return gluon_h100


def results(name):
    path = RESULTS / f"{name}.json"
    if not path.exists():
        pytest.skip(f"benchmarks/{name}.py has not been run")
    return json.loads(path.read_text())


def tried_tflops(tried, experiment, dtype, shape, form):
    """Of a form in an experiment of hopper_tried_h100.json, unrounded."""
    (run,) = (r for r in tried["runs"] if (r["experiment"], r["dtype"], r["shape"]) == (experiment, dtype, shape))
    return run["flops"] / statistics.median(run["samples_ms"][form]) / 1e9


def test_the_tables_in_the_texts_are_those_of_the_results(script):
    texts = [path.read_text() for path in script.TEXTS]
    for name in script.tables():
        assert sum(f"<!-- {name}:" in text for text in texts) == 1, name
    for path, text in zip(script.TEXTS, texts, strict=True):
        assert script.with_tables(text, script.tables()) == text, f"{path}: python benchmarks/gluon_h100.py --tables"


def test_another_result_would_not_fit_the_texts(script):
    """The mutation of the test above."""
    document = results("gluon_h100")
    document["samples"][0]["tflops"]["sdpa_flash"] *= 1.01
    text = script.TEXTS[0].read_text()
    assert script.with_tables(text, {"gluon_h100": script.markdown(document, 8)}) != text


def test_every_attention_has_its_name_effect_assembled_and_timed_where_the_code_differs(script):
    """What was timed has the code that was assembled; Blackwell's was timed nowhere."""
    import gluon_assembled
    import name_effect

    assembled = {(row["kernel"], row["ptxas"]): row for row in results("gluon_assembled")["samples"]}
    measured = {(row["kernel"], row["ptxas"]): row for row in results("gluon_ab")["samples"]}
    assert {kernel for kernel, _ in assembled} == {subject[0] for subject in gluon_assembled.subjects()}
    assert all(row["control_is_neutral"] for row in assembled.values())
    assert set(measured) <= set(assembled)
    for one, row in measured.items():
        code = assembled[one]
        assert (row["verdict"] == "same code") == code["same_code"], one
        if not code["same_code"]:
            assert name_effect.code_cells(row) == name_effect.code_cells({"code": {"": code["code"]}}), one
        assert not one[0].startswith("gluon_blackwell")
    assert {kernel for kernel, _ in measured} >= {kernel for kernel, _ in assembled if "_mma_" in kernel}


def test_the_texts_ranges_are_those_of_the_rows():
    readme = " ".join((ROOT / "README.md").read_text().split())
    rows = results("gluon_ab")["samples"]
    effects = {row["kernel"]: row["ratio"] - 1 for row in rows if row["ptxas"] == "Triton's" and row["ratio"]}
    mma = [effect for kernel, effect in effects.items() if "_mma_" in kernel]
    slower, faster = ([effect for effect in mma if (effect > 0) is sign] for sign in (True, False))
    said = (
        f"are {min(slower):.0%} to {max(slower):.0%} slower with it, or {-max(faster):.0%} to {-min(faster):.0%} faster"
    )
    assert _ranges(said) in readme
    replaced = results("gluon_ab")["replaced"]["samples"]
    old = [row["ratio"] - 1 for row in replaced if row["ptxas"] == "12.6.85"]
    assert _ranges(f"earlier forms were {min(old):.0%} to {max(old):.0%} slower (bf16)") in readme


def test_what_guessed_maxima_gain_is_what_was_measured():
    text = " ".join((ROOT / "docs" / "gluon-hopper.md").read_text().split())
    tried = results("hopper_tried_h100")

    def tflops(dtype, shape, form, experiment=4):
        return round(tried_tflops(tried, experiment, dtype, shape, form))

    guess = "turns=False,consumers=2,block_n=128,guess=True"
    for dtype, before_text in (("fp8e4nv", "fp8"), ("bf16", "bf16")):
        full, causal = (
            [tflops(dtype, f"B4 H16 S4096 D128{mask}", form) for form in ("old", f"new {guess}")]
            for mask in ("", " causal")
        )
        assert f"{before_text} {full[0]} to {full[1]}" in text, dtype
        assert f"causal {causal[0]} to {causal[1]}" in text, dtype
    by_fma = [tflops("fp8e4nv", "B4 H16 S4096 D128", f"{form} {guess}") for form in ("new", "p05")]
    assert f"at D128 {by_fma[0]} to {by_fma[1]} TFLOPS" in text
    lines = [f"by_fma={fma},by_lines={lines}" for fma, lines in ((1, 0), (0, 12))]
    forms = [f"inorder consumers=2,block_n=128,turns=False,guess=True,{way}" for way in lines]
    full, causal = (
        [tflops("fp8e4nv", f"B4 H16 S4096 D128{mask}", form, 11) for form in forms] for mask in ("", " causal")
    )
    assert f"{full[0]} to {full[1]} TFLOPS, causal {causal[0]} to {causal[1]}. That was shipped before codes" in text
    form = "consumers=2,block_n=128,turns=False,guess=True,by_fma=1"
    margin = [tflops("fp8e4nv", "B4 H16 S4096 D128 causal", f"{name} {form}", 5) for name in ("nomargin", "new")]
    assert f"causal, {margin[0]} to {margin[1]} TFLOPS" in text
    clocks = {row["instruction"]: row for row in tried["clocks"] if row["mma"] == "fp8 SS m64n128"}
    for name, label in (("ex2", "ex2.approx.ftz.f32"), ("max", "max.f32"), ("max.s32", "max.s32")):
        assert f"| {label} | {clocks[name]['alone']:.1f} | {clocks[name]['beside_mma']:.1f} |" in text, name


def test_what_codes_gain_is_what_was_measured():
    text = " ".join((ROOT / "docs" / "gluon-hopper.md").read_text().split()).replace("²", "")
    tried = results("hopper_tried_h100")

    def tflops(shape, form, dtype="fp8e4nv", experiment=13):
        return tried_tflops(tried, experiment, dtype, shape, form)

    def both(shape, *forms, experiment=13):
        return [[f"{tflops(shape + mask, form, experiment=experiment):.0f}" for form in forms] for mask in MASKS]

    long, short = "B4 H16 S4096 D128", "B16 H16 S1024 D128"
    full, causal = both(long, "old", "new")
    assert f"S4096 {full[0]} to {full[1]} TFLOPS, causal {causal[0]} to {causal[1]}" in text
    full, causal = both("B4 H16 S4096 D64", "old", "new")
    assert f"D64 {full[0]} to {full[1]}, causal {causal[0]} to {causal[1]}" in text
    full, causal = both(long, "r240", "new")
    assert f"for it: {full[0]} to {full[1]} TFLOPS, causal {causal[0]} to {causal[1]}" in text
    full, causal = both(long, "new", "new transpose_v=False")
    assert f"{full[0]} and {full[1]} TFLOPS, causal {causal[0]} and {causal[1]}; B16 H16 S1024" in text
    full, causal = both(short, "new", "new transpose_v=False")
    assert f"S1024 {full[0]} and {full[1]}, causal {causal[0]} and {causal[1]}." in text
    before, now = (f"{tflops(f'{long} causal', form):.0f}" for form in ("l32", "new"))
    before_short, now_short = (f"{tflops(f'{short} causal', form):.0f}" for form in ("l32", "new"))
    assert f"S4096 {before} to {now} TFLOPS, B16 H16 S1024 {before_short} to {now_short};" in text
    bf16 = [f"{tflops(f'{short} causal', form, 'bf16'):.0f}" for form in ("old", "new")]
    assert f"there bf16 {bf16[0]} to {bf16[1]}." in text
    full, causal = both(long, "new", "head4")
    assert f"with codes: {full[0]} to {full[1]} TFLOPS, causal {causal[0]} to {causal[1]}" in text
    (sums, now), _ = both(long, "nosums", "new")
    assert f"it has {sums} instead of {now}." in text
    best, waiting = "r232p32s2 variant=2,turns=True", "pren variant=2,turns=True,transpose_v=False"
    full, causal = both(long, waiting, best, experiment=14)
    assert f"had {full[0]} TFLOPS instead of {full[1]}, causal {causal[0]} instead of {causal[1]}" in text
    full, causal = both(long, "r224p64s3 variant=2,turns=True", best, experiment=14)
    assert f"ahead: {full[0]} TFLOPS instead of {full[1]}, causal {causal[0]} instead of {causal[1]}" in text
    full, causal = both(long, "new", "old", experiment=12)
    assert f"iteration {full[0]} TFLOPS where {full[1]}, causal {causal[0]} where {causal[1]}" in text
    with_lse, without = [], []
    for (shape, length), head_dim, mask in product((("B4 H16", 4096), ("B16 H16", 1024)), (128, 64), MASKS):
        label, form = f"{shape} S{length} D{head_dim}{mask}", f"new q={length}"
        for ratios, tag, lse in ((with_lse, " lse", ",l=True"), (without, "", "")):
            rough = tflops(label + tag, form + lse, experiment=25)
            ratios.append(rough / tflops(label, form, "bf16", experiment=25))
    means = [bench.geomean(ratios) for ratios in (with_lse, without)]
    assert f"fp8 is {means[0]:.2f} times as fast as bf16 in the geometric mean of eight shapes" in text
    assert f"where it is {means[1]:.2f} without (experiment 25)" in text
    errors = {row["form"]: row["relative"] for row in tried["errors"] if row["experiment"] == 13}
    assert f"off by {errors['new']:.4f} instead of {errors['new lse=True']:.4f}" in text


# Of docs/gluon-hopper.md, by experiment: dtype, shape, what it says, forms in that order.
D64, D64_SHORT, D128, D128_LONG = "B4 H16 S4096 D64", "B16 H16 S1024 D64", "B4 H16 S4096 D128", "B1 H16 S16384 D128"
D256, INTS, LATE = "B4 H8 S4096 D256", "int_max=True", "values_first=True"
TWO = f"{LATE},guess=True,int_max=False,consumers=2"
SEARCHED, SEARCHED_LATE = "guess=False,int_max=True", "int_max=True,guess=False,values_first=True"
SAID = [
    (22, "bf16", D128, "S4096 {} to {} TFLOPS, causal", "old q=4096", f"new {LATE},turns=False"),
    (22, "bf16", f"{D128} causal", "causal {} to {}, B1 S16384", "old q=4096", f"new {LATE},turns=False"),
    (22, "bf16", D128_LONG, "B1 S16384 {} to {} and", "old q=4096", f"new {LATE},turns=False"),
    (22, "bf16", f"{D128_LONG} causal", "and {} to {} (experiment 22)", "old q=4096", f"new {LATE},turns=False"),
    (25, "fp8e4nv", D128, "is faster: {} to {} TFLOPS", "new q=4096,overlap=False", "new q=4096"),
    (25, "fp8e4nv", f"{D128} causal", "causal {} to {} (experiment 25)", "new q=4096,overlap=False", "new q=4096"),
    (17, "bf16", D64, "S4096 {} to {} TFLOPS (experiment 17)", "new", f"new {INTS}"),
    (19, "fp8e4nv", D256, "D256 {} to {} (experiment 19)", "new q=4096", f"new q=4096,{INTS}"),
    (18, "bf16", D64_SHORT, "B16 H16 S1024 {} to {} TFLOPS, causal", f"new {INTS}", f"new {INTS},skips=True"),
    (18, "bf16", f"{D64_SHORT} causal", "causal {} to {}, S4096", f"new {INTS}", f"new {INTS},skips=True"),
    (18, "bf16", D64, "S4096 {} to {}, causal", f"new {INTS}", f"new {INTS},skips=True"),
    (18, "bf16", f"{D64} causal", "causal {} to {} (experiment 18)", f"new {INTS}", f"new {INTS},skips=True"),
    (23, "bf16", D64_SHORT, "B16 H16 S1024 {} to {} TFLOPS, causal", f"new {TWO}", f"new {TWO},keep_q=True"),
    (23, "bf16", f"{D64_SHORT} causal", "causal {} to {} (experiment 23)", f"new {TWO}", f"new {TWO},keep_q=True"),
    (24, "fp8e4nv", f"{D128} causal", "S4096 D128 {} to {} TFLOPS", "old q=4096", "new q=4096"),
    (24, "fp8e4nv", "B16 H16 S1024 D128 causal", "B16 S1024 {} to {} (exp", "old q=1024", "new q=1024"),
    (26, "fp8e4nv", D256, "searched maxima: {} to {} TFLOPS", "old q=4096", f"new q=4096,{SEARCHED}"),
    (26, "fp8e4nv", f"{D256} causal", "causal {} to {} (experiment 26)", "old q=4096", f"new q=4096,{SEARCHED}"),
    (17, "bf16", D64, "bf16, D64, {} to {} TFLOPS, D256", f"new {INTS}", f"new {INTS},sum_by_mma=True"),
    (17, "bf16", D256, "D256 {} to {} (experiment 17)", f"new {INTS}", f"new {INTS},sum_by_mma=True"),
    (17, "bf16", D64, "polynomial: D64 {} to {}.", f"new {INTS}", f"new {INTS},by_fma=2"),
    (22, "bf16", D128, "bf16 {} to {} TFLOPS (experiment 22)", f"new {LATE}", f"new {SEARCHED_LATE}"),
    (26, "fp8e4nv", D128, "fp8 with codes {} to {} (exp", "new q=4096", f"new q=4096,{SEARCHED}"),
    (23, "bf16", D128, "for bf16 at D128: {} to {}", f"new {LATE},turns=False", f"new {LATE},turns=False,keep_q=True"),
    (23, "fp8e4nv", D128, "Q in registers: {} to {} (exp", "new keep_q=True", "new keep_q=True,consumers=3,block_n=64"),
    (26, "fp8e4nv", D256, "as with `lse`: {} TFLOPS where {}, causal", "new q=4096,l=True", f"new q=4096,{SEARCHED}"),
    (26, "fp8e4nv", f"{D256} causal", "causal {} where {} (exp", "new q=4096,l=True", f"new q=4096,{SEARCHED}"),
]  # fmt: skip


@pytest.mark.parametrize(("experiment", "dtype", "shape", "said", "before", "now"), SAID)
def test_what_the_present_forms_gain_is_what_was_measured(experiment, dtype, shape, said, before, now):
    text = " ".join((ROOT / "docs" / "gluon-hopper.md").read_text().split()).replace("²", "")
    tried = results("hopper_tried_h100")
    numbers = [f"{tried_tflops(tried, experiment, dtype, shape, form):.0f}" for form in (before, now)]
    assert said.format(*numbers) in text


def test_how_much_faster_fp8_is_is_what_the_table_has():
    text = " ".join((ROOT / "docs" / "gluon-hopper.md").read_text().split())
    rows = {row["shape"]: row["tflops"] for row in results("gluon_h100")["samples"]}
    ratios = {shape: row["hopper_fp8e4nv"] / row["hopper_bf16"] for shape, row in rows.items()}

    def said(shape):
        return ratios[shape], ratios[f"{shape} causal"]

    (a, b), (c, d), (e, f) = map(said, ("B4 H16 S4096 D128", "B4 H16 S4096 D64", "B4 H8 S4096 D256"))
    assert (
        f"{a:.2f} times as fast at B4 H16 S4096 D128 (causal {b:.2f}), {c:.2f} at 64 (causal {d:.2f}), {e:.2f} at 256"
        f" (causal {f:.2f}; B4 H8); {min(ratios.values()):.2f} to {max(ratios.values()):.2f} over all" in text
    )
    assert min(a, b) > 1.4


def _ranges(text):
    """ "1% to 2%" as "1 to 2%", which is how the texts say it."""
    return text.replace("% to ", " to ")


def test_the_summary_follows_from_the_samples(script):
    document = results("gluon_h100")
    assert len(document["samples"]) >= 16
    for name, (subject, baseline) in script.SUMMARY.items():
        pairs = [(s["tflops"].get(subject), s["tflops"].get(baseline)) for s in document["samples"]]
        expected = bench.geomean(a / b for a, b in pairs if a and b)
        assert document["summary"][name] == (None if expected is None else pytest.approx(expected, rel=1e-4)), name


def test_the_shipped_defaults_are_the_tuners_answers():
    document = results("gluon_names")
    for sample in document["samples"]:
        problem = (sample["arch"], sample["dtype"], sample["head_dim"], sample["causal"], sample["queries"])
        assert default_config(*problem) == MmaConfig(**sample["best"]), problem
        assert default_config(120, *problem[1:]).name == PLAIN, "nothing was measured there"
        if sample["dtype"] == "bf16":
            assert replace(default_config(90, "fp16", *problem[2:]), dtype="bf16") == MmaConfig(**sample["best"])


def test_the_shapes_of_the_benchmark_are_many_and_distinct(script):
    assert len({shape.label for shape in script.SHAPES}) == len(script.SHAPES) >= 16
    assert {shape.head_dim for shape in script.SHAPES} == {64, 128, 256}


def test_flops_and_labels_of_a_shape():
    assert Shape(1, 1, 10, 64).flops == 4 * 10 * 10 * 64
    assert Shape(1, 1, 10, 64, causal=True).flops == 2 * 10 * 10 * 64
    assert Shape(2, 8, 16, 64, kv_heads=2, keys=32).label == "B2 H8/2 S16x32 D64"


def rows():
    fast, slow = Timed((1.0, 2.0, 3.0), True), Timed((4.0, 4.0, 5.0), True)
    return [Row(Shape(1, 1, 64, 64), {"mma_bf16": fast, "sdpa_flash": slow}, {"fa4": "not installed"})]


def test_a_row_gives_tflops_and_ratios_of_medians():
    (row,) = rows()
    assert row.ratio("mma_bf16", "sdpa_flash") == 2.0
    assert row.tflops("mma_bf16") == pytest.approx(4 * 64**3 / 2.0 / 1e9)
    assert row.ratio("mma_bf16", "fa4") is None and row.tflops("fa4") is None
    assert bench.geomean([2.0, None, 8.0]) == pytest.approx(4.0) and bench.geomean([None]) is None


def test_the_table_says_what_is_absent_and_why():
    text = bench.table(rows())
    assert "mma_bf16 is 2.000 times as fast as sdpa_flash" in text
    assert "absent: fa4: not installed" in text


def tried(name, ms, **fields):
    return Tried(MmaConfig(name=name, **fields), Timed((ms,), True))


def test_the_plain_name_wins_a_tie_and_only_a_tie():
    near = [tried("cutlass_x", 1.0), tried("x", 1.004)]
    assert best(near, "x").name == "x"
    far = [tried("cutlass_x", 1.0), tried("x", 1.006)]
    assert best(far, "x").name == "cutlass_x"
    with pytest.raises(ValueError, match="no candidate could be timed: too big"):
        best([Tried(MmaConfig(), reason="too big")], "x")


def test_name_effects_compare_one_tile_under_two_names():
    found = name_effects([tried("x", 2.0), tried("cutlass_x", 1.0), tried("x", 3.0, warps=8)], ("x", "cutlass_x"))
    assert found == {MmaConfig(name="x"): 2.0}


def test_a_reason_names_no_folder_of_this_machine():
    found = bench._without_paths("cannot import 'x' from 'a' (/opt/site/a/__init__.py), and/or 1/2")
    assert found == "cannot import 'x' from 'a' (__init__.py), and/or 1/2"
