-- The requests that defined a job, once it was requested again with another content. Until then its row is the record.
CREATE TABLE job_versions (
    job_id     uuid NOT NULL,
    version    integer NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    by         text,
    via        text NOT NULL,           -- api, amqp, cli, console
    definition json NOT NULL,           -- the columns of `jobs` that the request defined
    PRIMARY KEY (job_id, version)
);

-- Erase the content of the audit entries about a purged job and its runs. The runtime role cannot change entries itself.
CREATE FUNCTION erase_audit_content(things text[]) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path FROM CURRENT AS $$
    UPDATE audit SET before = NULL, after = NULL, address = NULL
    WHERE thing = ANY (things) AND kind IN ('job', 'run') AND (before IS NOT NULL OR after IS NOT NULL OR address IS NOT NULL)
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_runtime') THEN
        GRANT EXECUTE ON FUNCTION erase_audit_content(text[]) TO scheduler_runtime;
        REVOKE EXECUTE ON FUNCTION erase_audit_content(text[]) FROM PUBLIC;
    END IF;
END
$$;
