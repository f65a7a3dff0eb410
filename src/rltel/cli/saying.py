"""Lines on the terminal: names in them are other people's, and control characters would move the cursor."""

import typer

from rltel.core.wording import printable


def say(text: str, *, err: bool = False) -> None:
    """Print the lines of this text, on stderr if ``err``. What a terminal would obey is ``?``."""
    typer.echo("\n".join(map(printable, text.split("\n"))), err=err)
