"""From trackers to a Snapshot: export, and other processes' payloads."""
