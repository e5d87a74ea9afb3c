"""HTTP in, services, JSON out: one module for each thing."""
