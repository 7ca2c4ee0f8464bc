"""Capture: from compilers in a running program to a folder. session.py is the centre; a package for each front end."""
