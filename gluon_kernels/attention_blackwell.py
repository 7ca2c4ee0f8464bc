"""Short import path of the Blackwell attention, whose code is in gluon_kernels.blackwell."""

from functools import partial

from .blackwell.launch import attention as attention
from .offline import compile_offline as _compile_offline

compile_offline = partial(_compile_offline, kernel="blackwell")
