-- Which tenants may use each offer of a worker: an object of lists, by offer; an offer that is not in it is for all.
-- Null for a worker of a release that announces none: it serves every tenant.
ALTER TABLE workers ADD COLUMN offer_tenants jsonb;
