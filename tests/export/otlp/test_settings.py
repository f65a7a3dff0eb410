"""Which of the config and the standard variables holds, for each signal."""

from pathlib import Path
from typing import Any

import pytest

from rltel.core.config import OtlpConfig
from rltel.core.errors import ConfigError
from rltel.core.resolve import resolve
from rltel.export.otlp.settings import OtlpSettings, Signal, otlp_settings


def of(config: OtlpConfig | None = None, signal: Signal = "traces", **environ: str) -> OtlpSettings:
    """As `telemetry` asks for it: the general variables have become fields of the config."""
    variables = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in environ.items()}
    resolved = resolve({"otlp": config or OtlpConfig()}, variables).otlp
    return otlp_settings(resolved, variables, signal)


class TestUrl:
    @pytest.mark.parametrize(
        ("signal", "protocol", "url"),
        [
            ("traces", "http/protobuf", "http://127.0.0.1:4318/v1/traces"),
            ("metrics", "http/protobuf", "http://127.0.0.1:4318/v1/metrics"),
            ("traces", "grpc", "http://127.0.0.1:4317"),
        ],
    )
    def test_defaults(self, signal: Signal, protocol: Any, url: str) -> None:
        assert of(OtlpConfig(protocol=protocol), signal).url == url

    @pytest.mark.parametrize(
        ("base", "url"),
        [
            ("http://h:1", "http://h:1/v1/traces"),
            ("http://h:1/", "http://h:1/v1/traces"),
            ("https://h/otlp/", "https://h/otlp/v1/traces"),
            ("http://h:1/?key=k", "http://h:1/v1/traces?key=k"),
            ("HTTP://me:pass@h:1", "http://me:pass@h:1/v1/traces"),
        ],
    )
    def test_the_signal_s_path_is_below_the_base(self, base: str, url: str) -> None:
        assert of(OtlpConfig(endpoint=base)).url == url
        assert of(ENDPOINT=base).url == url

    def test_the_signal_s_own_variable_is_taken_as_it_is(self) -> None:
        assert of(TRACES_ENDPOINT="http://h:1/x/").url == "http://h:1/x/"
        assert of(TRACES_ENDPOINT="http://h:1", ENDPOINT="http://g:2").url == "http://h:1"

    def test_the_other_signal_s_variable_is_not_ours(self) -> None:
        assert of(METRICS_ENDPOINT="http://h:1/x", ENDPOINT="http://g:2").url == "http://g:2/v1/traces"

    @pytest.mark.parametrize("endpoint", ["h:4318", "ftp://h", "unix:///tmp/x"])
    def test_http_needs_a_url_of_http(self, endpoint: str) -> None:
        with pytest.raises(
            ConfigError, match=f'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: expected a URL .* got "{endpoint}"'
        ):
            of(TRACES_ENDPOINT=endpoint)

    def test_half_an_ipv6_address(self) -> None:
        with pytest.raises(ConfigError, match=r"^otlp.endpoint: Invalid IPv6 URL"):
            of(OtlpConfig(endpoint="http://[::1"))

    def test_grpc_takes_no_password_in_its_address(self) -> None:
        with pytest.raises(ConfigError, match=r"otlp.endpoint: gRPC takes no user name .* http://h:1; give") as raised:
            of(OtlpConfig(endpoint="http://me:geheim@h:1", protocol="grpc"))
        assert "geheim" not in str(raised.value)


class TestPrecedence:
    FIELDS = (
        ("protocol", "PROTOCOL", "grpc", "http/protobuf"),
        ("compression", "COMPRESSION", "gzip", "deflate"),
        ("certificate", "CERTIFICATE", "/a", "/b"),
        ("timeout_s", "TIMEOUT", "2.5", "3"),
    )

    @pytest.mark.parametrize(("field", "word", "one", "other"), FIELDS)
    def test_config_then_own_variable_then_general_one(self, field: str, word: str, one: str, other: str) -> None:
        def found(config: OtlpConfig | None = None, **environ: str) -> str:
            return f"{getattr(of(config, **environ), field):{'g' if field == 'timeout_s' else ''}}"

        as_given: Any = float(one) if field == "timeout_s" else one
        assert found(**{word: one}) == one
        assert found(**{word: other, f"TRACES_{word}": one}) == one
        assert found(OtlpConfig(**{field: as_given}), **{word: other, f"TRACES_{word}": other}) == one
        assert found(**{word: one, f"METRICS_{word}": other}) == one
        assert found(**{word: one, f"TRACES_{word}": "  "}) == one, "a variable that is set to nothing is not set"

    def test_general_variables_hold_where_the_config_was_not_resolved(self) -> None:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://g:2", "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}
        found = otlp_settings(OtlpConfig(), environ, "traces")
        assert (found.url, found.compression) == ("http://g:2/v1/traces", "gzip")

    def test_defaults(self) -> None:
        found = of()
        assert (found.protocol, found.compression, found.timeout_s) == ("http/protobuf", "none", 5.0)
        assert (dict(found.headers), found.certificate, found.client_certificate) == ({}, None, None)

    def test_client_certificates_come_from_variables(self) -> None:
        found = of(CLIENT_CERTIFICATE="/g", CLIENT_KEY="/gk", TRACES_CLIENT_CERTIFICATE="/t", TRACES_CLIENT_KEY="/tk")
        assert (found.client_certificate, found.client_key) == ("/t", "/tk")
        assert of(CLIENT_CERTIFICATE="/g").client_certificate == "/g"

    @pytest.mark.parametrize(
        ("word", "text", "needed"),
        [
            ("PROTOCOL", "http/json", '"grpc" or "http/protobuf"'),
            ("COMPRESSION", "zstd", '"none", "gzip" or "deflate"'),
            ("TIMEOUT", "soon", "a number > 0"),
            ("TIMEOUT", "0", "a number > 0"),
            ("TIMEOUT", "inf", "a number > 0"),
            ("INSECURE", "perhaps", "true or false"),
        ],
    )
    def test_a_variable_that_cannot_be_is_named(self, word: str, text: str, needed: str) -> None:
        with pytest.raises(ConfigError, match=f'^OTEL_EXPORTER_OTLP_TRACES_{word}: expected {needed}.*, got "{text}"'):
            of(**{f"TRACES_{word}": text})


class TestSecure:
    @pytest.mark.parametrize(
        ("protocol", "endpoint", "insecure", "secure"),
        [
            ("http/protobuf", "http://h", None, False),
            ("http/protobuf", "https://h", True, True),
            ("grpc", "http://h", None, False),
            ("grpc", "https://h", None, True),
            ("grpc", "https://h", True, True),
            ("grpc", "h:4317", None, True),
            ("grpc", "h:4317", True, False),
            ("grpc", "http://h", False, True),
        ],
    )
    def test_by_scheme_and_for_grpc_by_the_setting(
        self, protocol: Any, endpoint: str, insecure: bool | None, secure: bool
    ) -> None:
        assert of(OtlpConfig(protocol=protocol, endpoint=endpoint, insecure=insecure)).secure is secure

    def test_the_signal_s_own_variable(self) -> None:
        assert not of(OtlpConfig(protocol="grpc", endpoint="h:1"), TRACES_INSECURE="true", INSECURE="false").secure

    @pytest.mark.parametrize("name", ["CERTIFICATE", "CLIENT_CERTIFICATE"])
    def test_a_file_that_is_not_there_is_named(self, name: str, tmp_path: Path) -> None:
        missing = str(tmp_path / "none.pem")
        with pytest.raises(ConfigError, match=r"cannot read the (client )?certificate .*none.pem: No such file"):
            of(OtlpConfig(endpoint="https://h"), **{name: missing})
        of(OtlpConfig(endpoint="http://h"), **{name: missing})  # where it is not used, it does not matter

    def test_a_key_without_a_certificate(self) -> None:
        with pytest.raises(ConfigError, match="CLIENT_KEY: is set, and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not"):
            of(CLIENT_KEY="/k")


class TestHeaders:
    def test_the_config_s_are_over_the_variable_s(self) -> None:
        found = of(OtlpConfig(headers={"X-One": "config"}), TRACES_HEADERS="x-one=own,x-two=own", HEADERS="x-three=g")
        assert found.headers == {"x-one": "config", "x-two": "own"}

    def test_general_ones_hold_where_there_are_no_own(self) -> None:
        assert of(HEADERS="X-Key=a%20b, y = c=d ,", METRICS_HEADERS="z=1").headers == {"x-key": "a b", "y": "c=d"}

    def test_one_that_is_none_is_refused_without_its_text(self, caplog: pytest.LogCaptureFixture) -> None:
        """OpenTelemetry's parser leaves it out, and logs it: it may be a secret, and exports fail without it."""
        with pytest.raises(ConfigError, match=r"TRACES_HEADERS: expected name=value.*number 2 of 2 is none") as raised:
            of(TRACES_HEADERS="a=b,geheimnis")
        assert "geheimnis" not in str(raised.value) + caplog.text

    @pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
    @pytest.mark.parametrize("value", ["geheimnis\nX-Other: 1", "geheimnis\u0142"])
    def test_one_that_cannot_be_sent_is_refused_without_its_value(self, protocol: Any, value: str) -> None:
        """Every request would fail, with an error of the library that shows it."""
        with pytest.raises(ConfigError, match=r"otlp.headers: the value of x-key has line breaks or") as raised:
            of(OtlpConfig(protocol=protocol, headers={"X-Key": value}))
        assert "geheimnis" not in str(raised.value)

    def test_a_name_that_is_none(self) -> None:
        with pytest.raises(ConfigError, match=r'otlp.headers: "x key" is no name of a header'):
            of(OtlpConfig(headers={"x key": "v"}))


def test_no_secret_shows() -> None:
    found = of(OtlpConfig(endpoint="http://me:geheim@h:1/?token=geheim", headers={"authorization": "geheim"}))
    assert "geheim" not in repr(found) + found.address
    assert found.address.startswith("http://h:1/v1/traces?")
