"""Offline work on trace files: reading, merging."""
