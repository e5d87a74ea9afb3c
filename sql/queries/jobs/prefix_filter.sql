-- Filter by id, name or type prefix.
%(q)s IS NULL OR job_type LIKE %(q)s OR name LIKE %(q)s OR id BETWEEN %(lowest)s::uuid AND %(highest)s::uuid
