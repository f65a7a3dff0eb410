"""The ``rltel`` command: one file per group of commands."""

import typer

from rltel.cli.config import app as config_app
from rltel.cli.dashboards import app as dashboards_app
from rltel.cli.doctor import doctor_command
from rltel.cli.extract import extract_command
from rltel.cli.migrate import migrate_command
from rltel.cli.panel import panel_command
from rltel.cli.replay import replay_command
from rltel.cli.schema import schema_command
from rltel.cli.soak import soak_command
from rltel.cli.trace import app as trace_app

app = typer.Typer(name="rltel", help="Telemetry for reinforcement-learning training.", no_args_is_help=True)
app.add_typer(config_app, name="config", help="Look at the configuration.")
app.add_typer(dashboards_app, name="dashboards", help="Grafana dashboards and Prometheus rules, as files.")
app.add_typer(trace_app, name="trace", help="Work on timelines.")
app.command("doctor")(doctor_command)
app.command("extract")(extract_command)
app.command("migrate")(migrate_command)
app.command("panel")(panel_command)
app.command("replay")(replay_command)
app.command("schema")(schema_command)
app.command("soak", context_settings={"allow_interspersed_args": False})(soak_command)


@app.callback()
def main() -> None:
    """Telemetry for reinforcement-learning training."""
