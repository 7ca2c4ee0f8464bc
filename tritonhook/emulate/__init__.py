"""Execute PTX and machine code on the CPU, all threads of several CTAs at once as NumPy arrays.

`numbers` and `tensor_core` are the arithmetic that both front ends share. Everything here needs NumPy
(`pip install tritonhook[emulate]`) and is loaded by the function that needs it.
"""
