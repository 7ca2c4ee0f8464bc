"""What machine code is like, kept and compared: facts of each kernel, what changed in them, and by whom.

facts        the figures of one captured kernel, and what identifies it among others
stages       hashes of what the compiler made at each stage, to see which stage changed first
changes      two sets of facts compared: what got worse, who did it
lockfile     facts as a text file for code review, with the PTX beside it
built        the kernels of built libraries
budgets      what kernels may have whatever a lock says
captured     the kernels of capture folders that count, with their facts
recheck      kernels assembled again: facts of kept PTX under another ptxas, all codes of a captured kernel
bisection    which ptxas changed a kernel first
"""
