"""The whole sidecar on one machine, with no set-up."""
