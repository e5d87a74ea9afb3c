"""The REST API and the web console: a thin layer over the functions that apply commands."""
