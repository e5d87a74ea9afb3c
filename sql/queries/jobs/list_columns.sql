-- What people see of a job beside its own fields.
created_at, coalesce(updated_at, created_at) AS updated_at, created_by, updated_by,
last_due_at, last_emitted_at, last_problem
