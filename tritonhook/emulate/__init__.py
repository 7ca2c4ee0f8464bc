"""Execute PTX and machine code on the CPU, all threads of several CTAs at once as NumPy arrays.

`machine` has threads and their schedule, `memory` what they read and write. `ptx/` and `sass/` decode instructions, one
module for each group of opcodes. `numbers` and `tensor_core` are the arithmetic that both front ends share. What is not
known raises NotUnderstood: nothing is guessed. Everything here needs NumPy (`pip install tritonhook[emulate]`) and is
loaded by the function that needs it.
"""
