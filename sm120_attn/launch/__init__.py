"""From tensors to the launch of a compiled kernel.

    call       what a call asks for, as values
    checks     what a call may ask for
    prepare    work done once for calls that look alike: checks, choice of the kernel, its arguments
    hot_path   work done at every call
    operators  torch operators of launches
    strides    which tensors a kernel can read as they are, and copies of the others

What a call costs on the host is part of its speed where sequences are short. So everything that follows from shapes,
strides and flags is worked out once and kept (`PreparedCall`). A call that looks like an earlier one writes its
addresses and the stream into a buffer, and jumps into the compiled host function.
"""
