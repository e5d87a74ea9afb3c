"""Names of tenants and of calendar owners."""

DEFAULT_TENANT = "default"
TENANT_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
EVERY_TENANT = "*"  # the owner of calendars for all tenants
OWNER_PATTERN = r"^([A-Za-z0-9._-]{1,100}|\*)$"
CALENDAR_NAME_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
