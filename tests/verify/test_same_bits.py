"""The judgement of stored bits that children/bits.py has kept."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")

from tritonhook.capture.dry_run.gpu import EXECUTIONS  # noqa: E402
from tritonhook.errors import UsageError  # noqa: E402
from tritonhook.verify.same_bits import judge_all  # noqa: E402
from tritonhook.verify.schema import read_executions  # noqa: E402

ONE, NEAR, FAR, NAN = ([1.0, 2.0], [1.0, np.nextafter(np.float32(2), np.float32(3))], [1.0, 9.0], [1.0, np.nan])


def written(folder: Path, *lines: dict) -> list:
    """Judge executions. buffers: arrays by name."""
    for line in lines:
        kept = []
        for name, array in line.pop("stored", {}).items():
            array = np.asarray(array, getattr(array, "dtype", np.float32))
            data = np.ascontiguousarray(array).tobytes()
            (folder / sha256(data).hexdigest()).write_bytes(data)
            kept.append(
                {"name": name, "dtype": str(array.dtype), "data": sha256(data).hexdigest(), "shape": array.shape}
            )
        whole = {"kind": "configs", "kernel": "k", "call": 1, "label": "", "buffers": kept, **line}
        with (folder / EXECUTIONS).open("a") as file:
            file.write(json.dumps(whole) + "\n")
    return judge_all(folder, read_executions(folder))


@pytest.mark.parametrize(
    ("stored", "verdict", "groups"),
    [
        ((ONE, ONE, ONE), "SAME", [1, 1, 1]),
        ((NEAR, ONE, ONE), "OTHER BITS", [2, 1, 1]),
        ((ONE, FAR, NEAR), "WRONG", [1, 2, 3]),
        ((ONE, NAN), "WRONG", [1, 2]),
        ((NAN, NAN), "SAME", [1, 1]),
        ((np.int32([1, 2]), np.int32([1, 3])), "WRONG", [1, 2]),
        ((ONE, None, ONE), "SAME", [1, None, 1]),
        ((ONE, None), "NOT JUDGED", [1, None]),
    ],
)
def test_configurations(tmp_path, stored, verdict, groups):
    lines = [
        {"label": str(n), "reason": "does not fit"} if one is None else {"label": str(n), "stored": {"y": one}}
        for n, one in enumerate(stored)
    ]
    (judged,) = written(tmp_path, *lines)
    assert judged.verdict.value == verdict and [member.group for member in judged.members] == groups
    assert [member.reason for member in judged.members] == ["does not fit" if one is None else "" for one in stored]


PTX = ".version 8.3\n.target sm_90a\n.address_size 64\n.visible .entry k() {{ {} ret; }}\n"
INTS, ROUNDS, EXACT = (PTX.format(op) for op in ("add.s32 %r1, %r1, 1;", "add.f32 %f1, %f1, %f1;", "mov.f32 %f1, %f2;"))


@pytest.mark.parametrize(
    ("ptx", "interpreted", "nudged", "executed", "built", "verdict"),
    [
        (ROUNDS, ONE, ONE, ONE, ONE, "SAME"),
        (ROUNDS, ONE, ONE, NEAR, NEAR, "ROUNDING"),
        (ROUNDS, ONE, ONE, FAR, FAR, "WRONG"),
        (ROUNDS, ONE, [1.0, 2.5], FAR, FAR, "ROUNDING"),  # inputs that are 1 ulp away move it, too
        (ROUNDS, ONE, ONE, NAN, NAN, "NOT JUDGED"),
        (ROUNDS, ONE, ONE, ONE, FAR, "WRONG"),
        (EXACT, ONE, ONE, ONE, [1.0, 2.001], "WRONG"),  # ptxas may round nothing
        (ROUNDS, np.int32([1, 2]), np.int32([1, 2]), np.int32([1, 3]), np.int32([1, 3]), "NOT JUDGED"),
        (INTS, np.int32([1, 2]), np.int32([1, 2]), np.int32([1, 3]), np.int32([1, 3]), "WRONG"),
        (INTS, None, None, ONE, ONE, "SAME"),
        (INTS, None, None, ONE, None, "NOT JUDGED"),
    ],
)
def test_stages(tmp_path, ptx, interpreted, nudged, executed, built, verdict):
    stored = {"interpreter": interpreted, "nudged": nudged, "PTX": executed, "ptxas": built}
    lines = [
        {"kind": "stages", "label": label, "ptx": ptx if label == "PTX" else ""}
        | ({"reason": "not possible"} if one is None else {"stored": {"y": one}})
        for label, one in stored.items()
        if one is not None or label != "nudged"
    ]
    (judged,) = written(tmp_path, *lines)
    assert judged.verdict.value == verdict
    assert [one.label for one in judged.members] == ["interpreter", "PTX", "ptxas"]


def test_a_difference_in_one_ulp_of_an_order_counts(tmp_path):
    lines = [
        {"kind": "orders", "label": label, "stored": {"y": y}}
        for label, y in (("program order", ONE), ("order 2", NEAR))
    ]
    (judged,) = written(tmp_path, *lines)
    assert judged.verdict.value == "NONDETERMINISTIC" and "1 ulp" in judged.why


def test_rows_of_a_strided_result_are_compared_and_the_first_kernel_named(tmp_path):
    rows = np.arange(12, dtype=np.float32).reshape(4, 3)
    other = rows.copy()
    other[0, 1] += 1
    made = []
    for count, whole in ((2, rows), (4, other), (2, rows)):
        steps = (("first", rows[:count]), ("second", whole[:count]))
        made += [
            {"kind": "rows", "kernel": name, "call": n, "rows": count, "stored": {"y": y}, "settings": f"S={count}"}
            for n, (name, y) in enumerate(steps)
        ]
        made.append(
            {
                "kind": "result",
                "kernel": "f",
                "rows": count,
                "label": f"{count} rows",
                "stored": {"result": whole[:count].T},
            }
        )
    (judged,) = written(tmp_path, *made)
    assert judged.verdict.value == "BATCH VARIANT"
    assert judged.why == "second stores other bits: S=2 with 2 rows, S=4 with 4"
    (judged,) = written(tmp_path, {**made[2], "stored": {"result": other[:2].T}})
    assert judged.verdict.value == "NOT JUDGED" and "same seeds" in judged.why


def test_what_the_dry_run_refuses_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="no dimension 2"):
        written(tmp_path, {"kind": "refused", "reason": "it has no dimension 2"})
