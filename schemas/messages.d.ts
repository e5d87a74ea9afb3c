// The messages of the contract. Written by `make schemas` from the models; do not edit.
// An optional field may be left out, or null. docs/messages.md describes the messages.

/** An attempt in progress. */
export interface Busy {
  event_id: string;
  attempt: number;
  /** Webhook host, command name or handler name. */
  what: string;
  /** By the worker's clock. */
  since: string;
}

/** Reply to a ScheduleCalendar that was stored; its type is ScheduleAccepted. */
export interface CalendarAccepted {
  name: string;
  tenant: string;
  status: "stored" | "unchanged" | "superseded";
  /** Counts the changes. */
  version: number;
}

/** Reply to a ScheduleCalendar that can never succeed; its type is ScheduleRejected. */
export interface CalendarRejected {
  /** The calendar's name, if it is readable. */
  name: string | null;
  errors: FieldProblem[];
}

/** Run a command that a worker offers. */
export interface CommandTarget {
  name: string;
  arguments?: string[];
}

/** The attempt of an event. */
export interface DueRun {
  /** Delivery number, from 1. */
  attempt: number;
  /** Further attempts if this one fails. */
  attempts_left: number;
  max_attempts: number;
  /** `running` or the final result must arrive by then. */
  deadline: string;
  /** With a target: the policy's timeout. */
  timeout?: number | null;
  /** With a target: the policy's max_delay. */
  max_delay?: number | null;
}

/** A problem with one field of a command. */
export interface FieldProblem {
  field: string;
  problem: string;
}

/** The treatment of an occurrence on a closed day. */
export type OnClosed = "skip" | "next" | "previous" | "nearest" | "next_in_month";

/** Handling of occurrences that passed while nothing could run. */
export type OnMissed = "latest" | "all" | "skip";

/** Handling of an occurrence while a run of the same job is open. */
export type Overlap = "allow" | "skip" | "wait";

/** Priority of a job under load. */
export type Priority = "high" | "normal" | "low";

/** Status of an attempt as reported by a worker. */
export type ResultStatus = "running" | "succeeded" | "failed" | "snoozed";

/** Timeouts and retries of a tracked job. */
export interface RunPolicy {
  /** Seconds that an attempt may wait in a queue until `running` is reported. */
  start_timeout?: number;
  /** Seconds from the first `running` of an attempt to its final result. */
  timeout?: number;
  max_attempts?: number;
  /** Wait before attempt n+1: delay·2ⁿ⁻¹, delay·n, delay, or a list of seconds (last repeats). */
  backoff?: "exponential" | "linear" | "fixed" | number[];
  delay?: number;
  max_delay?: number;
  /** Applies while a run of the same job is open. */
  overlap?: Overlap;
  /** Number of open runs from which `overlap` applies; default 1. Not with `allow`. */
  max_running?: number | null;
}

/** Who triggered a run, and how. */
export interface RunTrigger {
  via: "api" | "amqp" | "cli" | "console";
  who: string | null;
}

/** Reply to a command that was stored. */
export interface ScheduleAccepted {
  id: string;
  status: "scheduled" | "cancelled" | "unchanged" | "superseded";
  next_run_at: string | null;
}

/** Store a calendar, or replace the calendar with the same name and owner. */
export interface ScheduleCalendar {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner; `*` for all tenants. */
  tenant?: string;
  name: string;
  /** Weekdays that are closed. */
  weekend?: ("MO" | "TU" | "WE" | "TH" | "FR" | "SA" | "SU")[] | null;
  /** Closed dates with names for display. `closed` and `open` have at most 10,000. */
  closed?: Record<string, string> | null;
  /** Open dates with display names; they win over `closed` and `weekend`. */
  open?: Record<string, string> | null;
  /** The last date on which `closed` and `open` count. */
  valid_until?: string | null;
}

/** Stop a job, even if its request has not arrived yet. */
export interface ScheduleCancel {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  /** The host's own key for the job. */
  id: string;
}

/** An occurrence is due. */
export interface ScheduleDue {
  /** Identifies the occurrence; the same for every emission of it. */
  event_id: string;
  job_id: string;
  job_type: string;
  payload: Record<string, unknown>;
  due_at: string;
  /** The instant that the rule alone gives. Present if the occurrence was moved. */
  nominal_at?: string | null;
  /** What changed the instant. Present if the occurrence was moved. */
  moved?: ("calendar" | "window" | "jitter")[] | null;
  emitted_at: string;
  /** Counts emitted occurrences from 1. */
  occurrence: number;
  /** Number of earlier occurrences that this event replaces. */
  missed: number;
  /** null after the last occurrence. */
  next_run_at: string | null;
  /** Present if it is not `default`. */
  tenant?: string | null;
  /** The work for a worker. */
  target?: Target | null;
  /** The attempt, if the job is tracked. */
  run?: DueRun | null;
}

/** A run succeeded, is dead or was cancelled. */
export interface ScheduleFinished {
  event_id: string;
  job_id: string;
  job_type: string;
  /** Present if it is not `default`. */
  tenant?: string | null;
  due_at: string;
  status: "succeeded" | "dead" | "cancelled";
  /** Number of delivered attempts. */
  attempts: number;
  started_at: string | null;
  finished_at: string;
  error: string | null;
  output: unknown;
  /** `output` was truncated. */
  output_cut?: boolean;
  /** Present if the run was triggered. */
  triggered_by?: RunTrigger | null;
}

/** Occurrences were skipped. */
export interface ScheduleMissed {
  /** Identifies the message; also its message_id. */
  id: string;
  job_id: string;
  job_type: string;
  /** The newest ones, oldest first. */
  missed: string[];
  missed_count: number;
  reason: "skip" | "max_lateness" | "latest" | "limit" | "overlap" | "calendar" | "merged";
}

/** Stop emitting until the job is resumed. */
export interface SchedulePause {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  /** The host's own key for the job. */
  id: string;
}

/** Reply to a result. */
export interface ScheduleRecorded {
  event_id: string;
  status: "recorded" | "unchanged" | "superseded";
}

/** Reply to a command that can never succeed. */
export interface ScheduleRejected {
  /** The command's id, if it is readable. */
  id: string | null;
  errors: FieldProblem[];
}

/** A change of a zone's rules or of a calendar moved a job's next run. */
export interface ScheduleReplanned {
  job_id: string;
  job_type: string;
  /** Present if it is not `default`. */
  tenant?: string | null;
  old_next_run_at: string | null;
  /** null if no occurrence is left. */
  next_run_at: string | null;
  reason: "zone" | "calendar";
  /** The zone or the calendar. */
  name: string;
  /** Version of the zone data, such as 2026c, or of the calendar. */
  version: string | number;
}

/** Run a job once or repeatedly. A second request with the same id replaces the schedule. */
export interface ScheduleRequest {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  /** The host's own key for the job. */
  id: string;
  /** The value the host dispatches on. */
  job_type: string;
  /** Returned unchanged in every ScheduleDue. */
  payload?: Record<string, unknown>;
  /** First run, and DTSTART of the rule: RFC 3339. Required if there is no recurrence. Without an offset it is local time in `timezone`. `now` is the instant at which the request is stored. */
  run_at?: string | null;
  /** RFC 5545: one rule, with or without `RRULE:`. More lines may be RDATE, EXDATE, and a DTSTART that replaces run_at and timezone. */
  rrule?: string | null;
  /** Five-field cron, or @hourly … @yearly. */
  cron?: string | null;
  /** Fixed interval from run_at, unaffected by clock changes: an ISO 8601 duration or seconds. */
  every?: string | number | null;
  /** IANA time zone in which rrule and cron are evaluated. */
  timezone?: string;
  /** The job has no schedule and runs only when it is triggered. Excludes the schedule fields. */
  manual?: boolean;
  /** true stores the job paused, false resumes it; without it the state stays. Ordered like a pause or resume with the request's issued_at. */
  paused?: boolean | null;
  /** How to handle occurrences that passed while nothing could run. */
  on_missed?: OnMissed;
  /** Seconds. An occurrence later than this is reported as missed instead of emitted. */
  max_lateness?: number | null;
  /** Name of a calendar; on its closed days on_closed applies. */
  calendar?: string | null;
  /** Handling of an occurrence on a closed day; default skip. Needs a calendar. */
  on_closed?: OnClosed | null;
  /** The hours, in timezone, in which the event may be emitted. */
  window?: SendingWindow | null;
  /** Seconds: each occurrence is emitted up to this much later. */
  jitter?: number | null;
  /** Display name in the console and the command line. */
  name?: string | null;
  /** Free text, shown in the console, the API and the command line. */
  description?: string | null;
  /** Order of emission under load; default normal. */
  priority?: Priority | null;
  /** Tracks the job: each occurrence is a run with attempts until it succeeds or is dead. */
  run?: RunPolicy | null;
  /** Work for a worker; the job is tracked. */
  target?: Target | null;
  /** The event's routing key is due.ROUTE. */
  route?: string | null;
}

/** The outcome of an attempt, or a sign that it is still running. */
export interface ScheduleResult {
  event_id: string;
  attempt: number;
  status: ResultStatus;
  /** Stored up to 4,000 characters. */
  error?: string | null;
  /** Any JSON, stored up to 64 KiB. */
  output?: unknown;
  /** With `failed`: false ends the run as dead without a retry. */
  retry?: boolean;
  /** Seconds. With `failed`: replaces the backoff. With `snoozed`: the event is sent again then. */
  retry_in?: number | null;
  /** With `running`: the next report must arrive within this number of seconds. */
  heartbeat?: number | null;
  progress?: number | null;
  worker?: string | null;
  /** Must be the job's tenant, if present. */
  tenant?: string | null;
  /** Worker's clock; used for durations only. */
  started_at?: string | null;
  /** Worker's clock; used for durations only. */
  finished_at?: string | null;
}

/** Resume a paused job; `on_missed` applies to the occurrences that passed. */
export interface ScheduleResume {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  /** The host's own key for the job. */
  id: string;
}

/** Retry a dead or cancelled run now, with a new set of attempts. */
export interface ScheduleRetry {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  event_id: string;
}

/** Emit one extra occurrence now; the schedule is unchanged. */
export interface ScheduleTrigger {
  /** Orders the host's commands for one id: the latest wins. A command without it counts as issued when it is stored. */
  issued_at?: string | null;
  /** The owner of the job. */
  tenant?: string;
  /** The host's own key for the job. */
  id: string;
}

/** Heartbeat of a worker, sent every ten seconds: identity, offers, current work and counts. */
export interface ScheduleWorker {
  /** Identifies the process; new after each start. */
  id: string;
  host: string;
  pid: number;
  version: string;
  /** By the worker's clock. */
  started_at: string;
  /** Work it accepts: `webhooks`, `command.NAME`, `handler.JOB_TYPE`. */
  offers: string[];
  /** Number of attempts in progress. */
  in_flight: number;
  /** The longest-running attempts. */
  busy?: Busy[];
  /** Attempts since its start, by outcome. */
  succeeded?: number;
  failed?: number;
  snoozed?: number;
  /** Number of this message; the latest one counts. */
  beat: number;
  /** The worker has stopped; this is its last message. */
  leaving?: boolean;
}

/** The hours in which events may be emitted; `from` is inside, `to` is not. */
export interface SendingWindow {
  from: string;
  /** Not after `from`: on the next day. */
  to: string;
  /** The days on which the window opens; default all. */
  days?: ("MO" | "TU" | "WE" | "TH" | "FR" | "SA" | "SU")[] | null;
}

/** The work for a worker: exactly one kind of work, and the pool that does it. */
export interface Target {
  webhook?: WebhookTarget | null;
  command?: CommandTarget | null;
  /** Only workers of this pool do the work. Default: `default`, the unnamed pool. */
  pool?: string | null;
}

/** Call a URL. */
export interface WebhookTarget {
  url: string;
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  /** The worker substitutes {{secret.NAME}} in values. */
  headers?: Record<string, string>;
  query?: Record<string, string>;
  /** A JSON value, or a string that is sent verbatim. Default: the ScheduleDue without its target. */
  body?: unknown;
  /** Seconds for the whole request. */
  timeout?: number;
  /** Name of the secret that signs the request. */
  secret?: string | null;
}
