"""Handlers of the console's pages, one module per page."""
