"""Adapters to trainers and libraries: each translates what one of them does, and nothing else."""
