"""Capture: from compilers in a running program to a folder. session.py is the centre; each front end has a package."""
