-- Return the statements that move enumerated types with these names.
SELECT format('ALTER TYPE %%I.%%I SET SCHEMA %%I', %(source)s, typname, %(target)s)
FROM pg_type
WHERE typnamespace = to_regnamespace(quote_ident(%(source)s)) AND typtype = 'e' AND typname = ANY (%(names)s)
