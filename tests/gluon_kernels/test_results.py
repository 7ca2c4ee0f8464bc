"""The committed results are complete, agree with each other, and with the kernels' defaults."""

import json
from dataclasses import replace

import pytest
from repository import ROOT

from benchmarks.gluon import gluon_speed
from gluon_kernels.mma.config import MmaConfig, default_config
from gluon_kernels.verify.bench import geomean

BENCHMARKS = ROOT / "benchmarks"


def results(name):
    return json.loads((BENCHMARKS / "results" / f"{name}.json").read_text())


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


def test_the_defaults_are_what_the_tuner_found():
    for sample in results("gluon_names")["samples"]:
        problem = (sample["arch"], sample["dtype"], sample["head_dim"], sample["causal"], sample["queries"])
        assert default_config(*problem) == MmaConfig(**sample["best"]), problem
        assert default_config(120, *problem[1:]).trigger is None, "nothing was measured there"
        if sample["dtype"] == "bf16":
            assert replace(default_config(90, "fp16", *problem[2:]), dtype="bf16") == MmaConfig(**sample["best"])
