"""OTLP: metrics as encoded requests, and what carries any request to a receiver."""
