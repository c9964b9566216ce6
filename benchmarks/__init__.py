"""Measurements that the documentation reports; run from a clone: python -m benchmarks.NAME."""
