"""A self-signed certificate of 127.0.0.1, made by the ``openssl`` program."""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest


class Certificate(NamedTuple):
    """Paths of PEM files. It is its own authority, and does for servers and clients."""

    cert: str
    key: str


def certificate(folder: Path) -> Certificate:
    """Made in the folder. Skips the test where there is no ``openssl``."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    try:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-keyout", str(key), "-out", str(cert), "-days", "1", "-subj", "/CN=localhost"),
                *("-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("no openssl here")
    return Certificate(str(cert), str(key))
