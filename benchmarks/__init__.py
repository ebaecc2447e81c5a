"""Figures beside the peers. Each file is one command: python -m benchmarks.<name>."""
