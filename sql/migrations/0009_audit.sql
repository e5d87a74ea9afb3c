-- Who changed what, when and from where; and of each job who made it and who changed it last. A job that was made over
-- AMQP says so itself: it has no row in the audit, which would double the cost of storing it.
CREATE TABLE audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    who     text,           -- the token's sub, the AMQP user, or the user of the command line
    via     text NOT NULL,  -- api, amqp, cli
    action  text NOT NULL,
    kind    text NOT NULL,  -- job, run, dead
    thing   text NOT NULL,  -- its id
    tenant  text NOT NULL,
    address text,           -- where the request came from
    before  json,           -- what differs, as it was and as it became
    after   json
);

CREATE INDEX audit_newest ON audit (at, id);
CREATE INDEX audit_of_thing ON audit (thing, at, id);

ALTER TABLE jobs
    ADD COLUMN created_by  text,
    ADD COLUMN created_via text,  -- none: over AMQP
    ADD COLUMN updated_by  text,
    ADD COLUMN updated_at  timestamptz;

-- Delete some of the oldest entries beyond the retention; say how many. Nobody else may delete any: this does it for the
-- runtime role, by the owner's right.
CREATE FUNCTION prune_audit(retention_days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    deleted integer;
BEGIN
    DELETE FROM audit
    WHERE id IN (
        SELECT id FROM audit
        WHERE at < now() - make_interval(days => greatest(retention_days, 0))
        ORDER BY at, id
        LIMIT least(most, 10000)
        FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;

-- Append-only for the role that the processes run as, where there is one (sql/roles/roles.sql).
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_runtime') THEN
        REVOKE UPDATE, DELETE, TRUNCATE ON audit FROM scheduler_runtime;
    END IF;
END
$$;
