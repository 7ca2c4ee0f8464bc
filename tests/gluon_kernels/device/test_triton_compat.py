"""Which Triton the kernels take."""

import pytest


def test_an_old_triton_is_refused():
    pytest.importorskip("triton", reason="requires triton")
    from gluon_kernels.device.triton_compat import why_not_triton

    assert "install triton>=3.6" in why_not_triton("3.5.1")
    assert why_not_triton("3.6.0") is None
    assert why_not_triton("3.10.0+git1234") is None
