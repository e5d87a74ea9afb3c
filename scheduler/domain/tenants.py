"""The names of tenants."""

DEFAULT_TENANT = "default"
TENANT_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
