"""Grafana dashboards as short Python; `make dashboards` writes the JSON that is committed in grafana/."""
