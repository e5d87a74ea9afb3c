-- Nobody can have the audit of the last day deleted, and where there is a runtime role (sql/roles/roles.sql) nobody else
-- can have any of it deleted. A runtime role of another name, which relies on what everybody may, is left as it is.
CREATE OR REPLACE FUNCTION prune_audit(retention_days integer, most integer) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
    deleted integer;
BEGIN
    DELETE FROM audit
    WHERE id IN (
        SELECT id FROM audit
        WHERE at < now() - make_interval(days => greatest(retention_days, 1))
        ORDER BY at, id
        LIMIT least(most, 10000)
        FOR UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS deleted = ROW_COUNT;
    RETURN deleted;
END
$$;

DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_runtime') THEN
        GRANT EXECUTE ON FUNCTION prune_audit(integer, integer) TO scheduler_runtime;
        REVOKE EXECUTE ON FUNCTION prune_audit(integer, integer) FROM PUBLIC;
    END IF;
END
$$;
