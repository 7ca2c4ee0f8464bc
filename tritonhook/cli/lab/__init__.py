"""Find out with ptxas which names change the code, and which instructions an architecture has.

tritonhook lab probe kernel.ptx --ptxas 12.8.93,13.5.37 --arch sm_90a,sm_100a
tritonhook lab caps --arch sm_120a,sm_121a --only 'TMA|mxf'
"""

from __future__ import annotations

from tritonhook.cli._parser import verb_in

ACTIONS = tuple(verb_in(__name__, action) for action in ("probe", "caps"))
