"""Where a backend's replicas come from: one source, one file. What a source last knew stays while it fails."""
