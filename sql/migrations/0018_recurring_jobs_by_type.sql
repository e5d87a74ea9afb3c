-- The jobs that recur also by type and by priority, and only while they are pending: those that are paused or over are
-- found by their status, and whoever looks for pending ones would walk over them. Rows of before that are not pending
-- stay until they are pruned; a list looks at a job's status itself.
ALTER TABLE recurring_jobs ADD COLUMN job_type text, ADD COLUMN priority priority;

CREATE OR REPLACE FUNCTION note_recurring_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    INSERT INTO recurring_jobs (created_at, id, tenant, job_type, priority)
    VALUES (NEW.created_at, NEW.id, NEW.tenant, NEW.job_type, NEW.priority)
    ON CONFLICT (created_at, id) DO UPDATE SET job_type = excluded.job_type, priority = excluded.priority;
    RETURN NULL;
END
$$;

CREATE FUNCTION forget_recurring_job() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    DELETE FROM recurring_jobs WHERE created_at = OLD.created_at AND id = OLD.id;
    RETURN NULL;
END
$$;

-- Still none of them fires when a job goes on to its next occurrence, or for a job that runs once.
DROP TRIGGER note_recurring_job ON jobs;
DROP TRIGGER note_job_that_recurs_now ON jobs;
CREATE TRIGGER note_recurring_job AFTER INSERT ON jobs FOR EACH ROW
    WHEN ((NEW.rrule IS NOT NULL OR NEW.cron IS NOT NULL OR NEW.every IS NOT NULL) AND NEW.status = 'pending')
    EXECUTE FUNCTION note_recurring_job();
CREATE TRIGGER note_job_that_recurs_now AFTER UPDATE OF status, rrule, cron, every, job_type, priority ON jobs FOR EACH ROW
    WHEN ((NEW.rrule IS NOT NULL OR NEW.cron IS NOT NULL OR NEW.every IS NOT NULL) AND NEW.status = 'pending'
          AND (OLD.status <> 'pending' OR (OLD.rrule IS NULL AND OLD.cron IS NULL AND OLD.every IS NULL)
               OR OLD.job_type IS DISTINCT FROM NEW.job_type OR OLD.priority IS DISTINCT FROM NEW.priority))
    EXECUTE FUNCTION note_recurring_job();
CREATE TRIGGER forget_job_that_recurs_no_more AFTER UPDATE OF status, rrule, cron, every ON jobs FOR EACH ROW
    WHEN ((OLD.rrule IS NOT NULL OR OLD.cron IS NOT NULL OR OLD.every IS NOT NULL) AND OLD.status = 'pending'
          AND (NEW.status <> 'pending' OR (NEW.rrule IS NULL AND NEW.cron IS NULL AND NEW.every IS NULL)))
    EXECUTE FUNCTION forget_recurring_job();
