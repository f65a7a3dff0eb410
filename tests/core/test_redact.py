import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rltel.core.redact import HIDDEN, redact, redact_url, secrets_in

SECRET = "sk-SECRET-4711"
SECRET_NAMES = [
    "api_key", "apikey", "API_KEY", "apiKey", "x-api-key", "wandb_api_key", "access_key", "private_key",
    "token", "hf_token", "auth_token", "access_token", "tokens", "secret", "client_secret", "password", "db_password",
    "passwd", "passphrase", "credential", "credentials", "Authorization", "auth", "proxy_auth", "cookie", "headers",
    "http_headers", "ssh_key", "encryption_key", "wandb_key", "bearer", "jwt", "GITHUB_PAT", "db_pwd", "pwd", "oauth",
    "auths", "slack_webhook_url",
]  # fmt: skip
HARMLESS = {
    "author": "ada",
    "tokenizer": "llama",
    "tokenizer_path": "/models/llama",
    "max_tokens": 1024,
    "pad_token_id": 0,
    "tokens_per_second": 1.5,
    "tokenize": True,
    "header_size": 5,
    "keys": ["a"],
    "sort_key": "time",
    "prompt_key": "question",
    "PWD": "/workspace/training",
    "pattern": "*.pt",
    "path": "data",
    "lr": 1e-4,
    "seed": 42,
    "project": "walk",
    "endpoint": "http://collector:4318/v1/metrics",
    "checkpoint": "s3://bucket/run@100",
    "nothing": None,
}


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_value_under_a_secret_name_is_hidden(name):
    assert redact({name: SECRET}) == {name: HIDDEN}


@pytest.mark.parametrize(
    "value", [SECRET, [SECRET], (SECRET, SECRET), {"x": SECRET}, {"x": {"y": [SECRET]}}, [{"z": SECRET}]]
)
def test_whatever_is_inside_a_secret_is_hidden(value):
    assert SECRET not in json.dumps(redact({"credentials": value}))


@pytest.mark.parametrize("name", ["password", "api_key", "token"])
def test_a_number_can_be_a_secret(name):
    assert redact({name: 4711}) == {name: HIDDEN}


def test_a_secret_in_something_named_after_tokens_is_hidden():
    assert redact({"tokens": {"password": 4711, "max": 5}}) == {"tokens": {"password": HIDDEN, "max": 5}}


@pytest.mark.parametrize("name", HARMLESS)
def test_a_setting_is_kept(name):
    assert redact({name: HARMLESS[name]}) == {name: HARMLESS[name]}


def test_none_is_no_secret():
    assert redact({"api_key": None, "headers": None}) == {"api_key": None, "headers": None}


def test_header_names_are_kept():
    assert redact({"headers": {"x-tenant": "t", "authorization": SECRET}}) == {
        "headers": {"x-tenant": HIDDEN, "authorization": HIDDEN}
    }


def test_headers_are_hidden_whatever_their_form():
    for headers in (f"authorization={SECRET}", [["authorization", SECRET]], {"authorization": SECRET}):
        assert SECRET not in json.dumps(redact(headers, "headers"))


def test_the_given_data_is_not_changed():
    given = {"a": {"password": SECRET}, "b": [{"token": SECRET}]}
    redact(given)
    assert given == {"a": {"password": SECRET}, "b": [{"token": SECRET}]}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host:4318/v1/metrics", "http://host:4318/v1/metrics"),
        ("https://user:pw@host/path", "https://host/path"),
        ("https://token@host", "https://host"),
        ("https://us@er:pw@host", "https://host"),
        ("https://host/path?api_key=x&y=1", "https://host/path?[redacted]"),
        ("https://host/path#access_token=x", "https://host/path"),
        ("https://host/p?", "https://host/p"),
        ("https://u:p@[::1]:4318/x", "https://[::1]:4318/x"),
        ("http://u:p@[broken", "http://[broken"),  # urllib refuses to split this one
        ("user:pw@host:4317", "host:4317"),
        ("host:4317", "host:4317"),
        ("", ""),
    ],
)
def test_url(url, shown):
    assert redact_url(url) == shown


@pytest.mark.parametrize(
    "text",
    [
        "push to https://user:sk-SECRET-4711@host/x every step",
        "http://a:sk-SECRET-4711@one,http://b:sk-SECRET-4711@two",
        "see https://host/x?key=sk-SECRET-4711",
        '{"url": "postgres://u:sk-SECRET-4711@db/x"}',
    ],
)
def test_a_url_inside_a_text_loses_its_secrets(text):
    shown = redact({"notes": text})["notes"]
    assert SECRET not in shown
    assert "://" in shown


plain = st.text(alphabet=st.characters(exclude_characters="/?#@,", exclude_categories=["Cs", "Z", "Cc"]), min_size=1)


@settings(deadline=None)
@given(user=plain, password=plain)
def test_no_url_keeps_its_password(user, password):
    assert redact_url(f"https://{user}:{password}@host.example/path") == "https://host.example/path"


names = st.text(max_size=8)
data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=10,
)


@settings(deadline=None)
@given(outside=data, inside=data, name=st.sampled_from(SECRET_NAMES))
def test_no_secret_survives_however_deep_it_is(outside, inside, name):
    shown = json.dumps(redact({"a": [outside, {"b": {name: [SECRET, {"c": [SECRET, inside]}]}}]}))
    assert SECRET not in shown


@settings(deadline=None)
@given(data)
def test_redacting_twice_changes_nothing_more(value):
    once = redact(value)
    assert redact(once) == once


@pytest.mark.parametrize(
    "text",
    [
        f"curl -H 'Authorization: Bearer {SECRET}' host",
        f"Authorization: Basic {SECRET}",
        f"401 for Bearer {SECRET}",
        f"Server=db;Password={SECRET};Timeout=5",
        f'{{"api_key": "{SECRET}"}}',
        f"{{'password': '{SECRET}'}}",
        f"train.py --api-key {SECRET} --lr 0.1",
        f"train.py --wandb.api_key={SECRET}",
        f"db_password: {SECRET}",
        "hf_abcdefghijklmnopqrstuvwxyz",
        "the key sk-proj-abcdefghijklmnopqrstuv was refused",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "https://hooks.slack.com/services/T000/B000/abcdefgh",
    ],
)
def test_a_secret_in_the_middle_of_a_text_is_hidden(text):
    shown = redact({"notes": text})["notes"]
    assert HIDDEN in shown
    assert not any(part in shown for part in (SECRET, "abcdefgh", "B000"))
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "train.py --max-tokens 4096 --tokenizer gpt2 --tokenizer=gpt2",
        "max_tokens=4096, pad_token_id: 0",
        "expected a number, got secret",
        "the password was refused",
        "auth://host/x",
        "Bearer",
        "sk-learn",
        "a: b, c=d",
    ],
)
def test_a_text_without_a_secret_is_kept(text):
    assert redact({"notes": text}) == {"notes": text}


def test_the_secrets_of_a_config_are_named_so_that_they_are_found_elsewhere():
    config = {"api_key": SECRET, "list": [{"token": "t-4711-t"}], "password": "short", "max_tokens": "100000", "x": "y"}
    assert sorted(secrets_in(config)) == [SECRET, "t-4711-t"]
