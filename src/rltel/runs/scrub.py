"""Secrets out of what is written about a run, also where they stand in a text: command lines, messages of errors."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltel.core.redact import HIDDEN, covered, is_secret_option, redact, secrets_in


class Scrub:
    """Hides what has a secret's name, and a known secret wherever it stands.

    Args:
        sources: mappings whose secrets are to be known: configs, the environment.
        home: the folder of the user, whose name is in it: written as ``~`` by `local`. None: as it is.
    """

    def __init__(self, sources: Iterable[Mapping[str, Any]], home: Path | None = None) -> None:
        self._secrets = {secret for source in sources for secret in secrets_in(source)}
        self._home = "" if home is None or len(home.parts) < 2 else str(home)

    def __call__(self, value: Any) -> Any:
        """A copy of plain data without secrets."""
        return covered(redact(value), self._secrets)

    def local(self, text: str) -> str:
        """A text about this machine, without secrets and without the user's name."""
        shown = str(self(text))
        return shown.replace(self._home, "~") if self._home else shown

    def command(self, arguments: Sequence[str]) -> list[str]:
        """A command line without the secrets in it: ``wandb.api_key=[redacted]``, ``--password [redacted]``."""
        shown = []
        option = ""  # the argument before, if it is one whose value may follow
        for argument in arguments:
            name, equals, value = argument.partition("=")
            if option and not argument.startswith("-") and is_secret_option(option, argument):
                shown.append(HIDDEN)
            elif equals and is_secret_option(name, value):
                shown.append(f"{name}={HIDDEN}")
            else:
                shown.append(self.local(argument))
            option = argument if argument.startswith("-") and not equals else ""
        return shown


def home() -> Path | None:
    """The user's folder; None if nobody knows it, as in a container."""
    try:
        return Path.home()
    except RuntimeError:
        return None
