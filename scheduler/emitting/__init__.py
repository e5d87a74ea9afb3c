"""Emit due rows: claim, publish, confirm, settle. Each kind of row has a source."""
