-- Save the plans of locked jobs. A job without a next run, without a skipped occurrence to report and without triggers is
-- done.
UPDATE jobs
SET next_run_at = plan.next_run_at, starts_at = plan.starts_at, ends_at = plan.ends_at, zone_version = plan.zone_version,
    nominal_at = plan.nominal_at, settled_until = plan.settled_until, settled_due = plan.settled_due,
    unsettled = CASE WHEN cardinality(plan.unsettled::timestamptz[]) > 0 THEN plan.unsettled::timestamptz[] END,
    reported_until = plan.reported_until, skip_at = plan.skip_at, calendar_revision = plan.calendar_revision,
    status = CASE WHEN plan.next_run_at IS NULL AND plan.skip_at IS NULL AND cardinality(triggers) = 0
                  THEN 'done' ELSE status END,
    finished_at = CASE WHEN plan.next_run_at IS NULL AND plan.skip_at IS NULL AND cardinality(triggers) = 0
                       THEN now() END
FROM unnest(%(ids)s::uuid[], %(next_run_at)s::timestamptz[], %(starts_at)s::timestamptz[], %(ends_at)s::timestamptz[],
            %(zone_versions)s::text[], %(nominal_at)s::timestamptz[], %(settled_until)s::timestamptz[],
            %(settled_due)s::timestamptz[], %(reported_until)s::timestamptz[], %(skip_at)s::timestamptz[],
            %(revisions)s::bigint[], %(unsettled)s::text[])
     AS plan (id, next_run_at, starts_at, ends_at, zone_version, nominal_at, settled_until, settled_due, reported_until,
              skip_at, calendar_revision, unsettled)
WHERE jobs.id = plan.id
