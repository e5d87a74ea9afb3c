-- Two roles for the sidecar: scheduler_owner changes the schema (`scheduler migrate`), scheduler_runtime only
-- reads and writes rows (`scheduler consumer`, `scheduler producer`, `scheduler top`, `job`, `run`). Run it in the
-- sidecar's database, before the first `scheduler migrate` and after `--move-to-schema`; running it again is harmless. Then give
-- each a password, for example with psql's \password.
--
-- Run it with psql, as a superuser or, in a managed service, as the database's owner with the attribute CREATEROLE. The latter
-- becomes a member of scheduler_owner.
--
-- It creates the schema `scheduler`. For another SCHEDULER_SCHEMA: PGOPTIONS='-c scheduler.schema=NAME' psql … -f roles.sql.
-- In a database of release 0.2, whose tables are in `public`, it works on `public`.

\set ON_ERROR_STOP on

DO $$
DECLARE
    own text := coalesce(nullif(current_setting('scheduler.schema', true), ''), 'scheduler');
    in_public boolean := EXISTS (
        SELECT FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE relname = 'schema_migrations' AND relnamespace = 'public'::regnamespace AND attname = 'checksum');
    function regprocedure;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_owner') THEN
        CREATE ROLE scheduler_owner LOGIN NOINHERIT;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'scheduler_runtime') THEN
        CREATE ROLE scheduler_runtime LOGIN NOINHERIT;
    END IF;
    IF NOT pg_has_role(current_user, 'scheduler_owner', 'USAGE') THEN
        EXECUTE format('GRANT scheduler_owner TO %I', current_user);  -- not a superuser, who may do all of this anyway
    END IF;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO scheduler_owner, scheduler_runtime', current_database());

    IF in_public AND to_regclass(format('%I.schema_migrations', own)) IS NULL THEN
        own := 'public';
        EXECUTE format('REVOKE ALL ON DATABASE %I FROM PUBLIC', current_database());
        REVOKE CREATE ON SCHEMA public FROM PUBLIC;
    ELSE
        EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I AUTHORIZATION scheduler_owner', own);
    END IF;
    EXECUTE format('GRANT USAGE, CREATE ON SCHEMA %I TO scheduler_owner', own);
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO scheduler_runtime', own);

    -- Privileges on existing tables. Default privileges below cover later migrations.
    EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %I TO scheduler_runtime', own);
    -- The runtime role can read the audit and add to it. Only the owner's function deletes entries, and keeps the last day.
    IF to_regclass(format('%I.audit', own)) IS NOT NULL THEN
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON %I.audit FROM scheduler_runtime', own);
    END IF;
    -- The owner's functions run with its rights: only scheduler_runtime may call them.
    FOR function IN
        SELECT oid FROM pg_proc WHERE pronamespace = quote_ident(own)::regnamespace AND proowner = 'scheduler_owner'::regrole
    LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', function);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO scheduler_runtime', function);
    END LOOP;
    ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA %I '
                   'GRANT EXECUTE ON FUNCTIONS TO scheduler_runtime', own);
    EXECUTE format('ALTER DEFAULT PRIVILEGES FOR ROLE scheduler_owner IN SCHEMA %I '
                   'GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO scheduler_runtime', own);
END
$$;
