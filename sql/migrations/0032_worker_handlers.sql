-- The job types that a worker's handlers serve, with their descriptions, parameters and defaults.
ALTER TABLE workers ADD COLUMN handlers json;
