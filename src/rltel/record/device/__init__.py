"""Device work on the timeline: what a stream ran, drawn where the device ran it."""
