-- Return the statements that let the tables' owner and the roles with privileges on them use the schema.
SELECT DISTINCT format('GRANT %%s ON SCHEMA %%I TO %%I', privilege, nspname, pg_get_userbyid(role))
FROM pg_namespace
JOIN pg_class ON relnamespace = pg_namespace.oid,
LATERAL (SELECT 'CREATE' AS privilege, relowner AS role
         UNION SELECT 'USAGE', relowner
         UNION SELECT 'USAGE', grantee FROM aclexplode(relacl) WHERE grantee <> 0) AS wanted
WHERE nspname = %(target)s AND relname = ANY (%(names)s) AND NOT has_schema_privilege(role, pg_namespace.oid, privilege)
