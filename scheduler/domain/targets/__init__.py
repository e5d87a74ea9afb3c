"""Validation of webhook and command targets."""
