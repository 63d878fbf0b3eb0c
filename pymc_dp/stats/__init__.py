"""Summaries and diagnostics to look at after sampling, and the planning of releases."""
