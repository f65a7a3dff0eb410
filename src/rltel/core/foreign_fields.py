"""The fields that a trainer's own sections set: checked as our own are, and named in errors as the trainer has them."""

from collections.abc import Iterable, Mapping
from typing import Any

from rltel.core.sections import TYPES, Layer
from rltel.core.wording import alternatives, fits, misfit, shown, suggestion

_MISSING = "???"  # what OmegaConf has for a value that is still to be given


class Fields:
    """Values by our own paths, each with where it comes from; and what is wrong with them."""

    def __init__(self) -> None:
        self.layer: Layer = {}
        self.origins: dict[str, str] = {}
        """Where each of our fields comes from: ``stats_logger.wandb.mode``."""
        self.problems: list[str] = []
        self.notes: list[str] = []

    def put(self, path: str, value: Any, origin: str) -> None:
        """Set one of our fields, if its value fits; else that is a problem under the trainer's name for it."""
        kind = TYPES[path]
        if str in alternatives(kind) and isinstance(value, (int, float)) and not isinstance(value, bool):
            value = str(value)  # `trial_name: 7`: the trainers' own schemas take it for a text
        if is_unresolved(value):
            self.problems.append(_unresolved(origin, value))
        elif not fits(value, kind):
            self.problems.append(misfit(origin, kind, value))
        else:
            section, name = path.split(".")
            self.layer.setdefault(section, {})[name] = value
            self.origins[path] = origin

    def take(self, path: str, section: Mapping[str, Any], name: str, prefix: str) -> None:
        """Set one of our fields from a trainer's, if that is set."""
        value = section.get(name)
        if is_set(value):
            self.put(path, value, f"{prefix}.{name}")

    def text(self, section: Mapping[str, Any], name: str, prefix: str) -> str | None:
        """A trainer's field that makes several of ours; None if it is not set."""
        value = section.get(name)
        if not is_set(value):
            return None
        if is_unresolved(value):
            self.problems.append(_unresolved(f"{prefix}.{name}", value))
        elif isinstance(value, (str, int, float)) and not isinstance(value, bool):
            return str(value)
        else:
            self.problems.append(misfit(f"{prefix}.{name}", str, value))
        return None

    def mapping(self, section: Mapping[str, Any], name: str, prefix: str) -> Mapping[str, Any]:
        """A section inside a trainer's; empty if it is not there."""
        value = section.get(name)
        if isinstance(value, Mapping):
            return value
        if is_set(value):
            self.problems.append(misfit(f"{prefix}.{name}" if prefix else name, dict[str, Any], value))
        return {}

    def refuse_unknown(self, section: Mapping[str, Any], known: Iterable[str], prefix: str, *, is_object: bool) -> None:
        """A key that the trainer does not have is a typing error; in its own dataclass it is a newer version's."""
        known = list(known)
        for name in section:
            if name in known:
                continue
            if is_object:
                self.notes.append(f"{prefix}.{name}: not known to this version of rltel, not taken over")
            else:
                self.problems.append(f"{prefix}.{name}: unknown key{suggestion(name, known)}")


def is_set(value: Any) -> bool:
    """Whether a trainer's field says anything: its None, empty text and ``???`` stand for "not set"."""
    return value is not None and value not in ("", _MISSING)


def is_unresolved(value: Any) -> bool:
    """Whether a value is still an interpolation of OmegaConf's."""
    return isinstance(value, str) and "${" in value


def _unresolved(origin: str, value: Any) -> str:
    return (
        f"{origin}: expected a value, got the interpolation {shown(value, origin)}, which could not be resolved "
        "(OmegaConf does that, where it is installed and what it refers to is given)"
    )
