"""``python -m rltel`` is the command ``rltel``."""

from rltel.cli import app

app()
