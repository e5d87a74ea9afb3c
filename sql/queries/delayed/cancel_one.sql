-- Cancel one pending message by number; waits if a producer has claimed it.
DELETE FROM delayed_messages
WHERE id = %(id)s AND exchange IS NOT NULL
RETURNING id
