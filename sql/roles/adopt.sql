-- Give the tables, types and functions of an installation that another role created to scheduler_owner. Run it once
-- as that role or as a superuser, in the sidecar's database, after roles.sql; then run roles.sql again.
DO $$
DECLARE
    object record;
BEGIN
    FOR object IN
        SELECT format('ALTER TABLE %I.%I OWNER TO scheduler_owner', schemaname, tablename) AS statement
        FROM pg_tables WHERE schemaname = 'public'
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO scheduler_owner', t.oid::regtype)
        FROM pg_type t WHERE t.typnamespace = 'public'::regnamespace AND t.typtype = 'e'
        UNION ALL
        SELECT format('ALTER FUNCTION %s OWNER TO scheduler_owner', p.oid::regprocedure)
        FROM pg_proc p
        WHERE p.pronamespace = 'public'::regnamespace
          AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e')
    LOOP
        EXECUTE object.statement;
    END LOOP;
END
$$;
