"""Faults of a kernel that need not change what it stores today: races in shared and global memory, barriers that not
all lanes of a warp reach, what nothing has written, missing fences between proxies.

`order` watches shared memory while PTX is executed: which access is ordered before which; `tensor` that
of tensor memory, `world` global memory, with what threads hand on by `flags`. `findings` is what people
read. `run` executes a launch with all of them.
"""
