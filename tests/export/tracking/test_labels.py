"""What a run is called in tracking services, and what of its config goes there."""

import json
from pathlib import Path

from export.making import identity
from realparts.tracking import labels
from rltel.core.config import OtlpConfig, RunConfig, TelemetryConfig, WandbConfig
from rltel.export.tracking.labels import config_of, fit_id, labels_of

KEY = "k3y-" + "0" * 36


class TestNames:
    def test_as_unilab_gives_them(self, tmp_path: Path) -> None:
        made = labels(tmp_path / "2026-11-30_01-00-00", algo="sac", task="pendulum", backend="mujoco")
        assert made.name == "sac__pendulum__2026-11-30_01-00-00"
        assert (made.group, made.job_type, made.tags) == ("pendulum", "sac", ("sac", "pendulum", "mujoco"))

    def test_what_the_config_says_comes_first(self, tmp_path: Path) -> None:
        assert labels(tmp_path, name="mine", algo="sac").name == "mine"

    def test_else_the_run_id(self, tmp_path: Path) -> None:
        made = labels(tmp_path)
        assert (made.name, made.group, made.job_type, made.tags) == ("run-1", None, None, ())

    def test_ids_have_only_what_every_service_takes(self) -> None:
        assert fit_id("exp/trial #1 ü") == "exp-trial-1-"


class TestConfig:
    def test_the_trainer_s_and_the_destination_s_which_wins(self, tmp_path: Path) -> None:
        made = config_of(labels(tmp_path, config={"lr": 1, "seed": 1}), {"seed": 2})
        assert (made["lr"], made["seed"]) == (1, 2)
        assert made["rltel"]["run_id"] == "run-1"

    def test_secrets_are_redacted_by_their_names(self, tmp_path: Path) -> None:
        made = config_of(labels(tmp_path, config={"api_key": KEY, "db": {"password": "hunter2"}}), {})
        assert (made["api_key"], made["db"]["password"]) == ("[redacted]", "[redacted]")

    def test_keys_that_we_know_are_redacted_wherever_they_stand(self, tmp_path: Path) -> None:
        settings = TelemetryConfig(
            wandb=WandbConfig(api_key=KEY), otlp=OtlpConfig(headers={"x": "Bearer other-secret"})
        )
        known = labels_of(settings, identity(tmp_path), {"SWANLAB_API_KEY": "from-environment"})
        extra = {"command": f"run --key={KEY}", KEY: 1, "a": ["from-environment"], "b": "Bearer other-secret"}
        text = json.dumps(config_of(known, extra))
        assert not [secret for secret in (KEY, "from-environment", "other-secret") if secret in text]

    def test_a_secret_of_the_trainer_s_own_config_is_redacted_wherever_else_it_stands(self, tmp_path: Path) -> None:
        own = {"api_key": KEY, "note": f"with {KEY}", "object": Path(f"/{KEY}"), "bytes": f"pw={KEY}".encode()}
        known = labels_of(TelemetryConfig(run=RunConfig(config=own)), identity(tmp_path), {})
        assert KEY not in json.dumps(config_of(known, {"text": f"x {KEY} y", "command": "--password hunter2"}))
        assert "hunter2" not in json.dumps(config_of(known, {"object": Path("--password hunter2")}))

    def test_keys_do_not_show_in_the_labels_either(self, tmp_path: Path) -> None:
        settings = TelemetryConfig(wandb=WandbConfig(api_key=KEY))
        assert KEY not in repr(labels_of(settings, identity(tmp_path), {}))

    def test_half_characters_are_spelled_out_since_no_service_takes_them(self, tmp_path: Path) -> None:
        made = labels(tmp_path, name="n\ud800", algo="a\ud800", task="t\ud800", config={"p\udcff": ["v\udcff"]})
        assert (made.name, made.group, made.job_type) == ("n\\ud800", "t\\ud800", "a\\ud800")
        json.dumps([made.tags, config_of(made, {})], ensure_ascii=False).encode()

    def test_it_is_plain_data(self, tmp_path: Path) -> None:
        made = config_of(labels(tmp_path, config={"path": tmp_path, "t": (1, 2), 3: float("inf")}), {})
        assert (made["path"], made["t"], made["3"]) == (str(tmp_path), [1, 2], "inf")
        json.dumps(made, allow_nan=False)

    def test_no_host_and_no_folder_unless_the_trainer_put_them_there(self, tmp_path: Path) -> None:
        assert str(tmp_path) not in json.dumps(config_of(labels(tmp_path), {}))
