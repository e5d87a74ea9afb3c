"""A randomised, model-based adversary of the whole system, from outside: see docs/chaos.md."""
