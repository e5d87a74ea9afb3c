"""Measurements, each beside its yardstick in the same run."""
