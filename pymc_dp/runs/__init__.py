"""Runs that are more than one call of ``pm.sample``: many fits, and long ones that survive a kill."""
