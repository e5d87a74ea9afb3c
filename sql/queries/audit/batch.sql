-- What a bulk action changed, oldest first: the thing, the action, and the fields as they were. `standing`: nothing has
-- changed the thing since; a trigger changes nothing.
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
