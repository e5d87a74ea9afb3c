"""Benchmarks, each with a yardstick in the same run."""
