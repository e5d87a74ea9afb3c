-- Return the entries of a bulk action, oldest first: job or run, action, and the fields before it. `standing`: no later
-- entry has changed the job or run; a trigger changes nothing.
SELECT ours.id, ours.thing, ours.tenant, ours.kind, ours.action, ours.before,
       NOT EXISTS (SELECT FROM audit AS later
                   WHERE later.thing = ours.thing AND (later.at, later.id) > (ours.at, ours.id)
                     AND later.kind = ours.kind AND later.action <> 'trigger') AS standing
FROM audit AS ours
WHERE ours.batch = %(batch)s::uuid
  AND (%(tenant)s IS NULL OR ours.tenant = %(tenant)s)
  AND ours.id > %(after)s
ORDER BY ours.id
LIMIT %(limit)s
