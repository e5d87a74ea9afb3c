"""The fault suite: breaks every part while the sidecar works, and accounts for every event."""
