"""Short import path of the mma.sync attention, whose code is in gluon_kernels.mma."""

from functools import partial

from .mma.launch import attention as attention
from .offline import compile_offline as _compile_offline

compile_offline = partial(_compile_offline, kernel="mma")
