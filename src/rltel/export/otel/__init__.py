"""Exporters for other OpenTelemetry programs: their metrics and spans in our files."""
