"""Prometheus's form of a name: one suffix for the unit, never two."""

import pytest

from rltel.names.prometheus import label_name, prometheus_name


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "wanted"),
    [
        ("rl.stats.a.b", "", "gauge", "rl_stats_a_b"),
        ("rl.loop.duration", "s", "histogram", "rl_loop_duration_seconds"),
        ("rl.sync.size", "By", "gauge", "rl_sync_size_bytes"),
        ("rl.samples.rate", "{sample}/s", "gauge", "rl_samples_rate_per_second"),
        ("rl.train.tokens", "{token}", "counter", "rl_train_tokens_total"),
        ("rl.sync.size", "By", "counter", "rl_sync_size_bytes_total"),
        ("rl.share", "%", "gauge", "rl_share_percent"),
        ("a..b--c", "", "gauge", "a_b_c"),
    ],
)
def test_name(name: str, unit: str, instrument: str, wanted: str) -> None:
    assert prometheus_name(name, unit, instrument) == wanted


@pytest.mark.parametrize(
    ("name", "unit", "instrument", "wanted"),
    [
        ("step.duration_ms", "ms", "gauge", "step_duration_milliseconds"),
        ("step.duration.milliseconds", "ms", "gauge", "step_duration_milliseconds"),
        ("step.duration_seconds", "s", "histogram", "step_duration_seconds"),
        ("step.time_s", "s", "gauge", "step_time_seconds"),
        ("tokens.total", "{token}", "counter", "tokens_total"),
        ("sent.bytes", "By", "gauge", "sent_bytes"),
        ("sent.total", "By", "counter", "sent_bytes_total"),
        ("rate.per_second", "{sample}/s", "gauge", "rate_per_second"),
    ],
)
def test_metebalci_thur_93_no_suffix_comes_twice(name: str, unit: str, instrument: str, wanted: str) -> None:
    assert prometheus_name(name, unit, instrument) == wanted


def test_a_word_that_only_ends_like_a_unit_stays() -> None:
    assert prometheus_name("rl.items", "ms", "gauge") == "rl_items_milliseconds"
    assert prometheus_name("rl.losses", "s", "gauge") == "rl_losses_seconds"


def test_label_name() -> None:
    assert label_name("rl.phase.kind") == "rl_phase_kind"
