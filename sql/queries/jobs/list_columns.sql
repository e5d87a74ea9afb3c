-- Columns of a job that only lists and the API return.
created_at, coalesce(updated_at, created_at) AS updated_at, created_by, updated_by,
last_due_at, last_emitted_at, last_problem
