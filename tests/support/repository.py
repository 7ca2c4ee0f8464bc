"""Where the tests find the repository and their own files."""

from pathlib import Path

SUPPORT = Path(__file__).resolve().parent  # helpers that tests and the programs they start import by name
TESTS = SUPPORT.parent
GOLDEN = TESTS / "golden"
ROOT = TESTS.parent
