"""The result of a tuning: what is told of levers that give no code of their own."""

from __future__ import annotations

from documents import golden

from tritonhook.report.result import read_result


def test_a_lever_with_the_code_of_another_one_is_not_told() -> None:
    assert not [note for note in read_result(golden("tuning")).summary().notes if "regalloc=1" in note]


def test_an_older_document_does_not_say_whose_code_it_is() -> None:
    older = golden("tuning")
    for kernel in older["kernels"]:
        for dropped in kernel["dropped"]:
            del dropped["equal_to"]
    assert read_result(older).summary().notes[1] == "layer_norm, copy: regalloc=1: the code of plain"


def test_kernels_of_one_name_are_told_apart() -> None:
    document = golden("tuning")
    document["kernels"][0]["title"] = "layer_norm[BLOCK=64]"
    assert read_result(document).summary().tables[0].rows[0][0] == "layer_norm[BLOCK=64]"
