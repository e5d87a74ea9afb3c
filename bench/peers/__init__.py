"""`make bench-peers`: compare with alternative libraries on the same servers in the same run."""
