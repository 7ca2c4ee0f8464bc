"""From a config to a compiled kernel that can be called.

build            the host function of a config, and which sources make its code
fake_arguments   arguments with which a host function is compiled
compiler         runs the CuTe DSL's compiler: PTX and cubin, also for absent GPUs
cache            compiled kernels of this process and on disk
abi              how a compiled host function takes its arguments
"""
