-- Delete a replica that stops.
DELETE FROM replicas WHERE id = %(id)s
