"""Short import path of the Hopper attention, whose code is in gluon_kernels.hopper."""

from functools import partial

from .hopper.launch import attention as attention
from .offline import compile_offline as _compile_offline

compile_offline = partial(_compile_offline, kernel="hopper")
