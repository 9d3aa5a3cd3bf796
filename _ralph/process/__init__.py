"""Processes: run one, end all that it started."""
