"""The names of tenants, and of the owners of calendars."""

DEFAULT_TENANT = "default"
TENANT_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
EVERY_TENANT = "*"  # the owner of calendars for all tenants
OWNER_PATTERN = r"^([A-Za-z0-9._-]{1,100}|\*)$"
CALENDAR_NAME_PATTERN = r"^[A-Za-z0-9._-]{1,100}$"
