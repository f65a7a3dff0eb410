"""Watches a command over a long time: its processes, memory, descriptors and progress, and how it ends.

Reads ``/proc`` and the files that the command writes. Never imports what the command uses (torch and the like).
"""
