"""The telemetry's settings in ``cfg["logger"]``, with rsl_rl's folder where no other is named."""

from collections.abc import Mapping
from typing import Any

from rltel.core.resolve import resolve
from rltel.core.sections import SECTIONS


def with_defaults(given: Any, log_dir: str) -> Mapping[str, Any]:
    """What was given, and what an rsl_rl training expects: files in its folder, TensorBoard among them.

    Weaker than any ``RLTEL_*`` variable. Raises `ConfigError` for what is no setting.
    """
    config = resolve(given, {})
    parts = {name: getattr(config, name) for name in SECTIONS}
    layer = {name: {field: getattr(part, field) for field in part.given()} for name, part in parts.items()}
    if not layer["run"].keys() & {"dir", "log_root", "id"}:
        layer["run"]["dir"] = log_dir
    layer["tensorboard"].setdefault("path", "{run_dir}")
    if not resolve(layer, {}).anything_on():
        layer["jsonl"]["path"] = "{run_dir}/metrics/rsl_rl.jsonl"  # who names this writer wants a record at least
    return layer
