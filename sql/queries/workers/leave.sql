-- Take a worker that ends off the list.
DELETE FROM workers WHERE id = %(id)s
