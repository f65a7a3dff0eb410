"""Where a run sent its numbers, as its own ``run_config.json`` says: a replay goes there, too."""

import logging
from collections.abc import Mapping
from pathlib import Path

from rltel.core.sections import Layer
from rltel.core.variables import RLTEL_VARIABLE
from rltel.runs.run_config import recorded_settings

_log = logging.getLogger("rltel")
_COMMON = ("run", "names", "jsonl")
_SECTION = {"prometheus-push": "prometheus"}
_ONLY = {"prometheus": ("push_url",)}  # the rest is about the endpoint of a process that is no more
_ALSO = {"otlp.headers": "OTEL_EXPORTER_OTLP_HEADERS", "wandb.api_key": "WANDB_API_KEY"}


def recorded_setup(run_dir: Path, name: str, environ: Mapping[str, str]) -> Layer:
    """What of the run's config is about this destination; empty without a file.

    A secret that the run had and the environment does not give is named, once: the file has none.
    """
    settings, hidden = recorded_settings(run_dir)
    section = _SECTION.get(name, name)
    for path in hidden:
        if _is_meant(path, section) and RLTEL_VARIABLE[path] not in environ and _ALSO.get(path, "") not in environ:
            _log.warning(
                "%s: the run had one, and run_config.json keeps no secrets; set %s if %s needs it",
                *(path, RLTEL_VARIABLE[path], name),
            )
    return {
        each: {field: value for field, value in fields.items() if _is_meant(f"{each}.{field}", section)}
        for each, fields in settings.items()
        if each in (*_COMMON, section)
    }


def _is_meant(path: str, section: str) -> bool:
    found, _, field = path.partition(".")
    return found in _COMMON or (found == section and field in _ONLY.get(section, (field,)))
