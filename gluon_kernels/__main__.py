"""Entry point of `python -m gluon_kernels`."""

import sys

from .cli import main

sys.exit(main())
