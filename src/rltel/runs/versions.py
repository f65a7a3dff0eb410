"""What is installed of what the program uses: the version of every package that it has imported."""

import platform
import sys
from importlib import metadata

from rltel.version import VERSION

_DISTRIBUTION = {  # whose distribution is not named as the package is
    "PIL": "pillow",
    "opentelemetry": "opentelemetry-api",
    "cv2": "opencv-python",
    "rsl_rl": "rsl-rl-lib",
    "sklearn": "scikit-learn",
    "uni_rl": "unilab-rl",
    "yaml": "PyYAML",
}
_ALWAYS = ("torch", "numpy")


def versions() -> dict[str, str]:
    """By package: Python, rltel, torch and numpy (if they are installed), and what else was imported so far.

    Imports nothing. Takes some milliseconds, for about a tenth of a millisecond a package.
    """
    imported = {name.partition(".")[0] for name in list(sys.modules)} - set(sys.stdlib_module_names)
    packages = sorted({*imported, *_ALWAYS} - {"rltel"}, key=str.lower)
    found = {name: version for name in packages if not name.startswith("_") and (version := _version(name))}
    return {"python": platform.python_version(), "rltel": VERSION, **found}


def _version(package: str) -> str | None:
    try:
        found: str | None = metadata.version(_DISTRIBUTION.get(package, package))
    except (metadata.PackageNotFoundError, ValueError):
        found = getattr(sys.modules.get(package), "__version__", None)
    return found if isinstance(found, str) else None
