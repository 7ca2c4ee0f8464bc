"""The programs of interpret.py."""
