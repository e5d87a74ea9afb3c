-- Fetch the large values of rows that are claimed, which the claim itself has left out.
SELECT {key}, {values}
FROM {table}
WHERE {key} = ANY (%(ids)s::uuid[])
