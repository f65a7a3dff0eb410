"""Slices as OpenTelemetry spans: over OTLP, or live on a user's own TracerProvider."""
