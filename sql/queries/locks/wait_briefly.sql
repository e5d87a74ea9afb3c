-- Give up lock waits of this transaction soon.
SELECT set_config('lock_timeout', %(wait)s, true)
