-- What a worker runs on, the pools it serves, and how many attempts it runs at a time. Older workers do not say.
ALTER TABLE workers ADD COLUMN platform text, ADD COLUMN pools text[], ADD COLUMN capacity integer;
