"""Names of kernels that last from build to build."""

from __future__ import annotations

import time

import pytest

from tritonhook.ptx.normal_form import lasting_name, source_file, without_hashes

ANONYMOUS = "_ZN39_GLOBAL__N__8253817b_7_anon_cu_73fc6ea76scaledILi4EEEvPff"  # as nvcc 13.0 writes it
STATIC = "__nv_static_28__8253817b_7_anon_cu_73fc6ea7_"


@pytest.mark.parametrize(
    ("name", "lasting", "file"),
    [
        (ANONYMOUS, "_ZN12_GLOBAL__N_16scaledILi4EEEvPff", "anon_cu"),
        (f"{STATIC}_Z5plainPf", "_Z5plainPf", "anon_cu"),
        (f"{STATIC}{ANONYMOUS}", "_ZN12_GLOBAL__N_16scaledILi4EEEvPff", "anon_cu"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add", None),
        ("triton_red_fused__to_copy_native_layer_norm_12", "triton_red_fused__to_copy_native_layer_norm", None),
        ("kernel_cutlass_add_tensorptrf32gmemo1281_35_0", "kernel_cutlass_add_tensorptrf32gmemo1281_35", None),
        # Names that stay as they are.
        ("kernel_cutlass", "kernel_cutlass", None),
        ("add_kernel_0", "add_kernel_0", None),
        ("triton_kernel_2", "triton_kernel_2", None),
        ("_ZN12_GLOBAL__N_16scaledEv", "_ZN12_GLOBAL__N_16scaledEv", None),
        # Not what nvcc writes: the length is wrong, or there is no second hash.
        ("_ZN39_GLOBAL__N__8253817b_9999_anon_cu_73fc6ea7", "_ZN39_GLOBAL__N__8253817b_9999_anon_cu_73fc6ea7", None),
        ("_ZN39_GLOBAL__N__8253817b_7_anon_cu_73fcXea7", "_ZN39_GLOBAL__N__8253817b_7_anon_cu_73fcXea7", None),
    ],
)
def test_what_changes_from_build_to_build_is_left_out(name: str, lasting: str, file: str | None) -> None:
    assert (lasting_name(name), source_file(name)) == (lasting, file)


def test_every_hash_in_a_text_is_left_out() -> None:
    other = ANONYMOUS.replace("8253817b", "00000000").replace("73fc6ea7", "11111111")
    texts = [f".func {name}; .global {name}x; add.s32 %r1;" for name in (ANONYMOUS, other)]
    assert without_hashes(texts[0]) == without_hashes(texts[1])
    assert without_hashes(texts[0]).endswith("; add.s32 %r1;")


@pytest.mark.parametrize("part", ["1", "_fused", "_1", "_GLOBAL__N_1", "__nv_static_1"])
def test_long_names_are_read_in_linear_time(part: str) -> None:
    name = "triton_" + part * (1 << 17) + "!_GLOBAL__N_"
    start = time.process_time()
    assert lasting_name(name) == without_hashes(name) == name
    assert time.process_time() - start < 2, "it took 16 s"
