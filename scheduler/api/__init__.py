"""The REST API and the web console: a thin room over the same functions that commands go through."""
