"""Names of a request's schedule fields."""

RULE_FIELDS = ("run_at", "rrule", "cron", "every", "timezone")
ADJUSTMENT_FIELDS = ("calendar", "on_closed", "window", "jitter")
SCHEDULE_FIELDS = (*RULE_FIELDS, *ADJUSTMENT_FIELDS)
