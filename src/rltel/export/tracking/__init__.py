"""Tracking services: W&B, SwanLab, Trackio."""
