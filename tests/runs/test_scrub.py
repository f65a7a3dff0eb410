"""No secret is written about a run, wherever it stands."""

from pathlib import Path

import pytest

from rltel.core.redact import HIDDEN
from rltel.runs.scrub import Scrub

KEY = "abcdef0123456789"


def test_a_secret_s_name_hides_it() -> None:
    assert Scrub([])({"wandb": {"api_key": KEY, "project": "p"}}) == {"wandb": {"api_key": HIDDEN, "project": "p"}}


def test_a_known_secret_is_found_in_any_text() -> None:
    scrub = Scrub([{"otlp": {"headers": {"x": KEY}}}, {"HF_TOKEN": "hf_0987654321"}])
    assert scrub({"error": f"401 for {KEY}", "list": ["hf_0987654321!"]}) == {
        "error": f"401 for {HIDDEN}",
        "list": [f"{HIDDEN}!"],
    }


def test_a_secret_in_another_leaves_nothing_of_it() -> None:
    scrub = Scrub([{"password": "abcdef", "api_key": "abcdef-ghijkl"}])
    assert scrub("abcdef-ghijkl abcdef") == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("value", ["", "true", "100000", "1e6"])
def test_what_is_short_or_a_number_is_no_secret_to_be_found(value: str) -> None:
    """``MAX_TOKENS=100000`` must not hide every 100000."""
    assert Scrub([{"MAX_TOKENS": value}])("true 100000 1e6") == "true 100000 1e6"


def test_a_url_loses_its_password() -> None:
    assert Scrub([])("cannot reach https://me:pass@host/v1?token=x") == f"cannot reach https://host/v1?{HIDDEN}"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["train.py", f"wandb.api_key={KEY}", "lr=0.1"], ["train.py", f"wandb.api_key={HIDDEN}", "lr=0.1"]),
        (["--password", "hunter2", "--steps", "5"], ["--password", HIDDEN, "--steps", "5"]),
        ([f"--api-key={KEY}", "x"], [f"--api-key={HIDDEN}", "x"]),
        (["--auth", "--verbose"], ["--auth", "--verbose"]),
        (["--max-tokens=4096", "--max_tokens", "5"], ["--max-tokens=4096", "--max_tokens", "5"]),
        (["--url=http://u:p@h/x"], ["--url=http://h/x"]),
        (["--tokenizer", "gpt2"], ["--tokenizer", "gpt2"]),
    ],
)
def test_command_lines(given: list[str], shown: list[str]) -> None:
    assert Scrub([]).command(given) == shown


def test_a_known_secret_is_hidden_on_a_command_line_too() -> None:
    assert Scrub([{"api_key": KEY}]).command([f"x={KEY}"]) == [f"x={HIDDEN}"]


def test_the_user_s_name_goes_with_the_home_folder() -> None:
    assert Scrub([], Path("/home/somebody")).local("/home/somebody/logs/run") == "~/logs/run"
    assert Scrub([], None).local("/home/somebody/logs") == "/home/somebody/logs"
    assert Scrub([], Path("/")).local("/logs/run") == "/logs/run"
