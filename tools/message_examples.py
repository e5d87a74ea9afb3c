"""One or more examples of every message, for the schemas; a test checks each against its model."""

from typing import Any

from scheduler.domain.messages import JOB_VERBS

_INVOICE = "7d9f4b1e-52a4-4f0e-9d3a-0c6f0e6f2d11"
_REPORT = "f2b1c0de-3c55-4f0b-9d0a-4f0f4c1b7a52"
_EVENT = "0b2c4c1e-7a51-5b0a-8d3e-6b0f8c6d2a10"
_ISSUED = "2026-10-30T17:21:09.123456Z"

EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "ScheduleRequest": [
        {"id": _INVOICE, "job_type": "invoice.reminder", "payload": {"invoice": 42},
         "run_at": "2026-12-01T09:00:00", "timezone": "Europe/Berlin", "issued_at": _ISSUED},
        {"id": _REPORT, "job_type": "report.weekly", "rrule": "FREQ=WEEKLY;BYDAY=MO",
         "run_at": "2026-12-07T08:30:00", "timezone": "America/New_York", "on_missed": "skip",
         "issued_at": _ISSUED},
        {"id": _REPORT, "job_type": "report.weekly", "cron": "30 8 * * 1", "timezone": "America/New_York"},
        {"id": _INVOICE, "job_type": "cache.warm", "every": "PT15M", "max_lateness": 60},
        {"id": _INVOICE, "job_type": "cache.clear", "manual": True, "paused": True, "description": "On demand"},
        {"id": _INVOICE, "job_type": "mail.send", "run_at": "now", "run": {"overlap": "wait", "max_running": 3}},
        {"id": _INVOICE, "job_type": "invoice.reminder", "run_at": "2026-12-01T09:00:00Z",
         "run": {"timeout": 60, "max_attempts": 5, "backoff": [10, 60, 600], "overlap": "skip"}},
    ],
    **{model.__name__: [{"id": _REPORT, "issued_at": _ISSUED}] for model in JOB_VERBS.values()},
    "ScheduleRetry": [{"event_id": _EVENT, "issued_at": _ISSUED}],
    "ScheduleResult": [
        {"event_id": _EVENT, "attempt": 1, "status": "running", "worker": "mailer-1", "heartbeat": 30,
         "progress": 0.4},
        {"event_id": _EVENT, "attempt": 1, "status": "succeeded", "output": {"sent": True}, "worker": "mailer-1"},
        {"event_id": _EVENT, "attempt": 1, "status": "failed", "error": "SMTPServerDisconnected", "retry_in": 30},
        {"event_id": _EVENT, "attempt": 1, "status": "snoozed", "retry_in": 900},
    ],
    "ScheduleWorker": [
        {"id": "3f1d3c52-6a44-4a52-8a3b-2b9a8f6f5a11", "host": "worker-1", "pid": 17, "version": "1.0.0",
         "started_at": "2026-11-30T06:00:00.000000Z", "offers": ["webhooks", "command.nightly-report"],
         "in_flight": 1, "busy": [{"event_id": _EVENT, "attempt": 1, "what": "hooks.example.org",
                                   "since": "2026-12-01T08:00:00.014112Z"}],
         "succeeded": 1042, "failed": 3, "snoozed": 0, "beat": 9361},
    ],
    "ScheduleRecorded": [{"event_id": _EVENT, "status": "recorded"}],
    "ScheduleFinished": [
        {"event_id": _EVENT, "job_id": _INVOICE, "job_type": "invoice.reminder",
         "due_at": "2026-12-01T08:00:00.000000Z", "status": "succeeded", "attempts": 2,
         "started_at": "2026-12-01T08:01:02.104112Z", "finished_at": "2026-12-01T08:01:03.501220Z", "error": None,
         "output": {"sent": True}},
        {"event_id": _EVENT, "job_id": _INVOICE, "job_type": "invoice.reminder",
         "due_at": "2026-12-01T08:00:00.000000Z", "status": "dead", "attempts": 3, "started_at": None,
         "finished_at": "2026-12-01T08:07:12.018411Z", "error": "SMTPServerDisconnected", "output": None},
    ],
    "ScheduleCalendar": [
        {"name": "de", "weekend": ["SA", "SU"], "closed": {"2026-12-25": "Christmas Day"},
         "open": {"2026-12-19": "bridge day"}, "valid_until": "2030-12-31", "issued_at": _ISSUED},
    ],
    "CalendarAccepted": [{"name": "de", "tenant": "default", "status": "stored", "version": 3}],
    "CalendarRejected": [
        {"name": "de", "errors": [{"field": "closed", "problem": "the date 2026-02-30 does not exist"}]},
    ],
    "ScheduleAccepted": [
        {"id": _INVOICE, "status": "scheduled", "next_run_at": "2026-12-01T08:00:00.000000Z"},
        {"id": _INVOICE, "status": "cancelled", "next_run_at": None},
    ],
    "ScheduleRejected": [
        {"id": _INVOICE, "errors": [
            {"field": "rule", "problem": "is not a field of this command; did you mean 'rrule'?"},
        ]},
        {"id": None, "errors": [{"field": "body", "problem": "is empty"}]},
    ],
    "ScheduleDue": [
        {"event_id": _EVENT, "job_id": _INVOICE,
         "job_type": "invoice.reminder", "payload": {"invoice": 42}, "due_at": "2026-12-01T08:00:00.000000Z",
         "emitted_at": "2026-12-01T08:00:00.004112Z", "occurrence": 7, "missed": 0,
         "next_run_at": "2026-12-08T08:00:00.000000Z"},
        {"event_id": _EVENT, "job_id": _INVOICE, "job_type": "invoice.reminder", "payload": {"invoice": 42},
         "due_at": "2026-12-01T08:00:00.000000Z", "emitted_at": "2026-12-01T08:01:02.004112Z", "occurrence": 1,
         "missed": 0, "next_run_at": None,
         "run": {"attempt": 2, "attempts_left": 1, "max_attempts": 3, "deadline": "2026-12-01T09:01:02.004112Z"}},
    ],
    "ScheduleMissed": [
        {"id": "5c1d9a52-8f1e-5a4b-9f0e-3b7c2d1e0f64", "job_id": _REPORT, "job_type": "report.weekly",
         "missed": ["2026-12-07T13:30:00.000000Z", "2026-12-14T13:30:00.000000Z"], "missed_count": 2,
         "reason": "skip"},
    ],
    "ScheduleReplanned": [
        {"job_id": _REPORT, "job_type": "report.weekly", "tenant": "acme",
         "old_next_run_at": "2026-12-07T17:00:00.000000Z", "next_run_at": "2026-12-07T16:00:00.000000Z",
         "reason": "zone", "name": "America/Vancouver", "version": "2026c"},
    ],
}
