"""`make bench-peers`: what a user would pick instead, on the same servers in the same run."""
