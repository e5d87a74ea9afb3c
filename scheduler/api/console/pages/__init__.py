"""HTTP in, services, pages out: one module for each page."""
