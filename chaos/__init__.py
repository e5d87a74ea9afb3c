"""The fault suite: break every part under load, and account for every event."""
