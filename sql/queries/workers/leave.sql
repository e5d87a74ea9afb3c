-- Delete a worker that stops.
DELETE FROM workers WHERE id = %(id)s
