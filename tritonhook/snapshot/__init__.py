"""What machine code is like, kept and compared: facts of each kernel, what changed in them, and by whom.

facts        the figures of one captured kernel, and what identifies it among others; of built libraries; budgets
changes      two sets of facts compared: what got worse, who did it
rules        what makes a comparison fail: --fail-on, budgets
lockfile     facts as a text file for code review, with the PTX beside it
folders      the kernels of capture folders that count, with their facts
assembled    kernels assembled again; crossed: to tell PTX and ptxas apart
executed     counters and bits of a launch, executed on the CPU
kernels      captured kernels as Python objects
bisection    which ptxas changed a kernel first
"""
