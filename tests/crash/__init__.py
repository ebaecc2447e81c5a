"""Killed at every instruction: the walk, the recoveries, and what is expected of them. See README.md."""
