-- What is known afterwards of a job's last event, so that anyone can tell why it was late. Settling writes it, and it
-- stays when the job moves on. No default and no NOT NULL: the rows are not rewritten, and the lock is brief.
ALTER TABLE jobs
    -- The newest occurrence that the broker confirmed.
    ADD COLUMN last_due_at         timestamptz,  -- the due_at of its event
    ADD COLUMN last_emitted_at     timestamptz,  -- when the event that was confirmed was sent
    ADD COLUMN last_confirmed_at   timestamptz,  -- when the broker had it

    -- The newest refusal, kept until there is another.
    ADD COLUMN last_problem        text,         -- why the broker refused the event
    ADD COLUMN last_problem_at     timestamptz,  -- when it did so last
    ADD COLUMN last_problem_due_at timestamptz,  -- the occurrence it was about
    ADD COLUMN last_refusals       integer;      -- how often that occurrence was refused
