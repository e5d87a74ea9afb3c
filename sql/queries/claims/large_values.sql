-- Fetch the large values of claimed rows, which the claim has omitted.
SELECT {key}, {values}
FROM {table}
WHERE {key} = ANY (%(ids)s::uuid[])
