"""Grafana dashboards as Python code. `make dashboards` writes the committed JSON in grafana/."""
