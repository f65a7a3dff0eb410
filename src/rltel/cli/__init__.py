"""The ``rltel`` command: one file per group of commands."""

import typer

from rltel.cli.trace import app as trace_app

app = typer.Typer(name="rltel", help="Telemetry for reinforcement-learning training.", no_args_is_help=True)
app.add_typer(trace_app, name="trace", help="Work on timelines.")


@app.callback()
def main() -> None:
    """Telemetry for reinforcement-learning training."""
