-- Take a replica that ends off the list.
DELETE FROM replicas WHERE id = %(id)s
