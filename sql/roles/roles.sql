-- Two roles for the sidecar: scheduler_owner changes the schema (`scheduler migrate`), scheduler_runtime only
-- reads and writes rows (`scheduler consumer`, `scheduler producer`, `scheduler top`, `job`, `run`). Run it in the
-- sidecar's database as a superuser, before the first `scheduler migrate`; running it again is harmless. Then give each
-- a password, for example with psql's \password.

DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_owner') THEN
        CREATE ROLE scheduler_owner LOGIN NOINHERIT;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_runtime') THEN
        CREATE ROLE scheduler_runtime LOGIN NOINHERIT;
    END IF;
    EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO scheduler_owner, scheduler_runtime', current_database());
END
$$;

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA public TO scheduler_owner;
GRANT USAGE ON SCHEMA public TO scheduler_runtime;

-- Privileges on existing tables. Default privileges below cover later migrations.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO scheduler_runtime;
-- The runtime role can read the audit and add to it. Only the owner's function deletes entries, and keeps the last day.
-- The owner's functions run with its rights: only scheduler_runtime may call them.
DO $$
DECLARE
    function regprocedure;
BEGIN
    IF to_regclass('public.audit') IS NOT NULL THEN
        REVOKE UPDATE, DELETE, TRUNCATE ON public.audit FROM scheduler_runtime;
    END IF;
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = 'public'::regnamespace AND proowner = 'scheduler_owner'::regrole
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO scheduler_runtime', function);
    END LOOP;
END
$$;
ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA public GRANT EXECUTE ON FUNCTIONS TO scheduler_runtime;
ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO scheduler_runtime;
