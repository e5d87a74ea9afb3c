-- Who made a bulk action, when and why, and how many jobs or runs it changed.
SELECT min(at), max(who), max(via), max(reason), min(action), min(kind), count(*)
FROM (SELECT at, who, via, reason, action, kind
      FROM audit
      WHERE batch = %(batch)s::uuid AND (%(tenant)s IS NULL OR tenant = %(tenant)s)
      ORDER BY id
      LIMIT %(most)s) AS entries
HAVING count(*) > 0
