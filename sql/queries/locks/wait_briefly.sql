-- Shorten the lock timeout of this transaction.
SELECT set_config('lock_timeout', %(wait)s, true)
