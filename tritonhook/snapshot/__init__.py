"""What machine code is like, kept and compared: facts of each kernel, what changed in them, and by whom.

facts        the figures of one captured kernel, and what identifies it among others; of built libraries; budgets
stages       hashes of what the compiler made at each stage, to see which stage changed first
changes      two sets of facts compared: what got worse, who did it
rules        what makes a comparison fail: --fail-on, budgets
lockfile     facts as a text file for code review, with the PTX beside it
captured     the kernels of capture folders that count, with their facts; and kernels assembled again
bisection    which ptxas changed a kernel first
"""
