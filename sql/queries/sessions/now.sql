-- Transaction time by the database's clock, the only one that counts.
SELECT now()
