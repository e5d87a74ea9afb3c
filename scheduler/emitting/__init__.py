"""Whatever falls due: claim → publish → confirm → settle, with a source for each kind of thing."""
