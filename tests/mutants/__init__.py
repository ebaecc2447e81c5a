"""Mutants of the Python engine: README is the head of campaign.py."""
