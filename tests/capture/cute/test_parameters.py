"""Which bytes of its parameters a kernel reads."""

from __future__ import annotations

from tritonhook.capture.cute.modules import reads_of

PTX = """
.visible .entry k(
	.param .align 8 .b8 k_param_0[32],
	.param .align 64 .b8 k_param_1[128],
	.param .u64 k_param_2,
	.param .u32 k_param_10
)
{
	mov.b64 	%rd1, k_param_1;
	ld.param.b64 	%rd2, [k_param_0];
	@%p1 ld.param.v2.b32 	{%r1, %r2}, [k_param_0+12];
	ld.param.b8 	%rs1, [k_param_10+3];
	ld.param.v2.b64 	{%rd3, %rd4}, [kk_param_2];
}
"""


def test_only_bytes_that_are_read_count() -> None:
    found = reads_of(PTX, "k")
    assert found.keys() == {0, 1, 10}, "parameter 2 is another kernel's"
    assert found[0].mask.to_bytes(32, "little").hex() == "ff" * 8 + "00" * 4 + "ff" * 8 + "00" * 12
    assert found[0].words == {0}, "two numbers of 32 bits are no pointer"
    assert (found[1].mask, found[1].words) == (-1, None), "its address is taken"
    assert found[10].mask == 0xFF << 24


def test_a_vector_of_words_has_pointers_in_each() -> None:
    assert reads_of(PTX, "kk")[2].words == {0, 8}
