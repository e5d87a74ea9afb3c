-- Hear what consumers say to producers.
LISTEN scheduler_wakeup
