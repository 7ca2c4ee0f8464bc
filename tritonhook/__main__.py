"""`python -m tritonhook`."""

import sys

from tritonhook.cli import main

sys.exit(main())
