"""What a key is called elsewhere: the catalogue, and the rules for OpenTelemetry and Prometheus names."""
