-- Whose a job is, who goes first, where its event goes and what a worker is to do. Constant defaults: no row is
-- rewritten, and the locks are brief.
CREATE TYPE priority AS ENUM ('high', 'normal', 'low');

ALTER TABLE jobs
    ADD COLUMN name     text,
    ADD COLUMN tenant   text NOT NULL DEFAULT 'default',
    ADD COLUMN priority priority,  -- none was asked for: normal, and the event carries none
    ADD COLUMN route    text,
    ADD COLUMN target   json;

ALTER TABLE runs
    ADD COLUMN tenant   text DEFAULT 'default',  -- none of one that is known by its results only
    ADD COLUMN priority priority,
    ADD COLUMN route    text,
    ADD COLUMN work     text;      -- the routing key by which a worker gets it

ALTER TABLE run_history
    ADD COLUMN tenant   text NOT NULL DEFAULT 'default',
    ADD COLUMN priority priority,
    ADD COLUMN route    text,
    ADD COLUMN work     text;
