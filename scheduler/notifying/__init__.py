"""Calls SCHEDULER_NOTIFY_WEBHOOK when something goes wrong or is well again."""
