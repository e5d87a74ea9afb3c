-- Return the statements that move our functions with these names, which all have their own search path.
SELECT format('ALTER FUNCTION %%s SET SCHEMA %%I', pg_proc.oid::regprocedure, %(target)s)
       || format('; ALTER FUNCTION %%I.%%I(%%s) SET search_path = %%I, pg_temp', %(target)s, proname,
                 pg_get_function_identity_arguments(pg_proc.oid), %(target)s)
FROM pg_proc
WHERE pronamespace = to_regnamespace(quote_ident(%(source)s)) AND proname = ANY (%(names)s)
  AND EXISTS (SELECT FROM unnest(proconfig) AS setting WHERE setting LIKE 'search_path=%%')
