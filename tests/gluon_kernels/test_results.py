"""The committed results are complete, agree with each other, and with the kernels' defaults."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gluon import gluon_assembled, gluon_speed, own_sums
from gluon_kernels.mma.config import MmaConfig, default_config
from gluon_kernels.verify.bench import geomean
from gluon_kernels.verify.fp8_accuracy import MOST_RMS_RATIO, MOST_ROW_RATIO, ROUNDING

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def results(name):
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())


def instructions(differences):
    """Instructions on one side only, and all of its instructions, for each side, in sentences on two codes."""
    found = [
        re.search(r"([\d,]+) of ([\d,]+) instructions only in a, ([\d,]+) of ([\d,]+) only in b", text)
        for text in differences
    ]
    return [one and one.groups() for one in found]


def test_every_attention_has_its_name_effect_assembled_and_timed_where_the_code_differs():
    """The code that was timed is the code that was assembled. Blackwell's was not timed."""
    assembled = {(row["kernel"], row["ptxas"]): row for row in results("gluon_assembled")["samples"]}
    measured = {(row["kernel"], row["ptxas"]): row for row in results("gluon_ab")["samples"]}
    assert {kernel for kernel, _ in assembled} == {subject[0] for subject in gluon_assembled.subjects()}
    assert all(row["control_is_neutral"] for row in assembled.values())
    assert set(measured) <= set(assembled)
    for one, row in measured.items():
        code = assembled[one]
        assert (row["verdict"] == "same code") == code["same_code"], one
        if not code["same_code"]:
            assert instructions(row["code"].values()) == instructions([code["code"]]), one
        assert not one[0].startswith("gluon_blackwell")
    assert {kernel for kernel, _ in measured} >= {kernel for kernel, _ in assembled if "_mma_" in kernel}


def test_the_summary_follows_from_the_samples():
    for file in ("gluon_h100", "gluon_h200"):
        document = results(file)
        assert len(document["samples"]) >= 16
        for name, (subject, baseline) in gluon_speed.SUMMARY.items():
            for key, suffix in (("tflops", ""), ("tflops_eager", "_eager")):
                speeds = [sample.get(key, {}) for sample in document["samples"]]
                expected = geomean(s[subject] / s[baseline] for s in speeds if subject in s and baseline in s)
                found = document["summary"].get(name + suffix)
                assert found == (None if expected is None else pytest.approx(expected, rel=1e-3)), name


def test_the_worst_of_fp8_is_that_of_its_samples_and_each_passes_its_judge():
    document = results("gluon_h200")
    samples = document["fp8_accuracy"]
    worst = gluon_speed.worst(samples)
    assert {name: document["summary"][name] for name in worst} == pytest.approx(worst, rel=1e-3)
    assert all(sample["reason"] is None for sample in samples)
    kinds = {(s["kind"], s["seqlen_k"], s["causal"]) for s in samples if s["kernel"] == "hopper"}
    assert len(kinds) == 16 * 3 * 2
    for peer in (gluon_speed.CUDNN, gluon_speed.TUTORIAL):
        timed = [sample for sample in document["samples"] if peer in sample["tflops"]]
        assert timed and all(peer in sample["tflops_eager"] for sample in timed)
        found = {(s["kind"], s["seqlen_k"], s["causal"]) for s in document["fp8_peers"] if s["kernel"] == peer}
        assert found == kinds, "no speed without its error"


def test_the_summary_of_own_sums_follows_from_its_samples_and_their_verdicts_from_their_errors():
    document = results("own_sums_h100")
    found = own_sums.summary(document["errors"], document["times"])
    assert document["summary"] == pytest.approx(found, rel=1e-3)
    for sample in document["times"]:
        forms = own_sums.forms(*(sample[name] for name in ("dtype", "head_dim", "causal", "seqlen")))
        for how in ("graph", "eager"):
            assert set(sample[how]) == set(forms)
            assert all(one["captured"] == (how == "graph") and len(one["ms"]) >= 15 for one in sample[how].values())
    for sample in (sample for sample in document["errors"] if sample["what"] == "judge"):
        rms, worst = (max(sample[name], ROUNDING) for name in ("measure_rms", "measure_worst"))
        passes = sample["rms"] <= MOST_RMS_RATIO * rms and sample["worst"] <= MOST_ROW_RATIO * worst
        assert (sample["reason"] is None) == passes, sample


def test_the_shapes_of_the_benchmark_are_many_and_distinct():
    shapes = gluon_speed.SHAPES
    assert len({shape.label for shape in shapes}) == len(shapes) >= 16
    assert {shape.head_dim for shape in shapes} == {64, 128, 256}


def test_the_defaults_are_what_the_tuner_found():
    for sample in results("gluon_names")["samples"]:
        problem = (sample["arch"], sample["dtype"], sample["head_dim"], sample["causal"], sample["queries"])
        assert default_config(*problem) == MmaConfig(**sample["best"]), problem
        assert default_config(120, *problem[1:]).trigger is None, "nothing was measured there"
        if sample["dtype"] == "bf16":
            assert replace(default_config(90, "fp16", *problem[2:]), dtype="bf16") == MmaConfig(**sample["best"])


def test_every_ptxas_that_knows_the_target_took_every_blackwell_kernel():
    document = results("gluon_blackwell")
    knows = {"sm_100a": set(document["ptxas"]), "sm_103a": {v for v in document["ptxas"] if not v.startswith("12.8")}}
    assert len(knows["sm_100a"]) >= 11
    for arch, titles in document["samples"].items():
        assert len(titles) == 18
        for title, versions in titles.items():
            assert set(versions) == knows[arch], title
            assert not any("crash" in cell for cell in versions.values()), title
