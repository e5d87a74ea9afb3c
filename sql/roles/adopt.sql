-- Give the tables, types and functions of an installation that another role created to scheduler_owner. Run it once
-- as that role or as a superuser, in the sidecar's database, after roles.sql; then run roles.sql again. It works on the
-- same schema as roles.sql.
\set ON_ERROR_STOP on

DO $$
DECLARE
    own text := coalesce(nullif(current_setting('scheduler.schema', true), ''), 'scheduler');
    object record;
BEGIN
    IF to_regclass(format('%I.schema_migrations', own)) IS NULL THEN
        own := 'public';  -- release 0.2
    END IF;
    FOR object IN
        SELECT format('ALTER TABLE %I.%I OWNER TO scheduler_owner', schemaname, tablename) AS statement
        FROM pg_tables WHERE schemaname = own
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO scheduler_owner', t.oid::regtype)
        FROM pg_type t WHERE t.typnamespace = quote_ident(own)::regnamespace AND t.typtype = 'e'
        UNION ALL
        SELECT format('ALTER FUNCTION %s OWNER TO scheduler_owner', p.oid::regprocedure)
        FROM pg_proc p
        WHERE p.pronamespace = quote_ident(own)::regnamespace
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE object.statement;
    END LOOP;
END
$$;
