"""Execute PTX and machine code on the CPU, all threads of several CTAs at once as NumPy arrays.

`machine` schedules threads, `memory` holds what they read and write. `ptx/` and `sass/` decode instructions, one module
for each group of opcodes. `numbers` and `tensor_core` are the arithmetic that both front ends share. An instruction
without a known meaning raises NotUnderstood; no result is guessed. The package needs NumPy (`pip install
tritonhook[emulate]`); other packages import it inside functions.

"Measured on a GPU" after a rule means: no document states the rule, an experiment showed it.
"""
