-- Which jobs recur, in the order in which they were made. People page through jobs, newest first; in an index on `jobs`
-- every emission of a job that recurs would leave an entry. Here a job has one row from when it is made until it is
-- pruned, whatever becomes of it meanwhile.
CREATE TABLE recurring_jobs (
    created_at timestamptz NOT NULL,
    id         uuid NOT NULL,
    tenant     text NOT NULL,
    PRIMARY KEY (created_at, id)
);

CREATE INDEX recurring_jobs_of_tenant ON recurring_jobs (tenant, created_at, id) WHERE tenant <> 'default';

CREATE FUNCTION note_recurring_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO recurring_jobs (created_at, id, tenant) VALUES (NEW.created_at, NEW.id, NEW.tenant)
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;

CREATE FUNCTION forget_recurring_jobs() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM recurring_jobs USING gone
    WHERE recurring_jobs.created_at = gone.created_at AND recurring_jobs.id = gone.id;
    RETURN NULL;
END
$$;

-- By triggers, so that whoever writes a job notes it, processes of the release before included. None of them fires when
-- a job is emitted, or for a job that runs once.
CREATE TRIGGER note_recurring_job AFTER INSERT ON jobs FOR EACH ROW
    WHEN (NEW.rrule IS NOT NULL OR NEW.cron IS NOT NULL OR NEW.every IS NOT NULL)
    EXECUTE FUNCTION note_recurring_job();
CREATE TRIGGER note_job_that_recurs_now AFTER UPDATE OF rrule, cron, every ON jobs FOR EACH ROW
    WHEN (OLD.rrule IS NULL AND OLD.cron IS NULL AND OLD.every IS NULL
          AND (NEW.rrule IS NOT NULL OR NEW.cron IS NOT NULL OR NEW.every IS NOT NULL))
    EXECUTE FUNCTION note_recurring_job();
CREATE TRIGGER forget_recurring_jobs AFTER DELETE ON jobs REFERENCING OLD TABLE AS gone FOR EACH STATEMENT
    EXECUTE FUNCTION forget_recurring_jobs();
