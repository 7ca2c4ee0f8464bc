"""From tensors to the launch of a compiled kernel.

    call       tensors and options of a call, as values
    checks     whether a call is supported
    prepare    work done once for equal calls: checks, choice of the kernel, its arguments
    hot_path   work done at every call
    operators  torch operators of launches
    strides    whether a kernel can read a tensor directly, and aligned copies

For short sequences the host's time is a large part of a call. So everything that follows from shapes, strides and flags
is computed once and kept (`PreparedCall`). A later call with the same shapes, strides and flags writes its addresses
and the stream into a buffer, and calls the compiled host function.
"""
