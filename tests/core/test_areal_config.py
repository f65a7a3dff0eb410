"""AReaL's form of config, against AReaL 1.0.4's own classes."""

import dataclasses
import getpass

import pytest
from omegaconf import OmegaConf

from realparts.areal_logger import areal_config_classes
from rltel.core.areal_config import FIELDS
from rltel.core.errors import ConfigError
from rltel.core.resolve import resolve, resolve_with_origins

NAMED = {"experiment_name": "gsm8k", "trial_name": "run1", "fileroot": "/data"}


@pytest.fixture(scope="module")
def areal():
    with areal_config_classes() as classes:
        yield classes


def problems_of(given):
    with pytest.raises(ConfigError) as caught:
        resolve(given, {})
    return str(caught.value).split("\n")


# What every field of AReaL's dataclasses becomes: (their path, a value, our path, its value).
EVERY_FIELD = [
    ("wandb.mode", "offline", "wandb.mode", "offline"),
    ("wandb.wandb_base_url", "http://w:1", "wandb.base_url", "http://w:1"),
    ("wandb.wandb_api_key", "k1", "wandb.api_key", "k1"),
    ("wandb.entity", "team", "wandb.entity", "team"),
    ("wandb.project", "p", "wandb.project", "p"),
    ("wandb.name", "n", "wandb.name", "n"),
    ("wandb.job_type", "j", "wandb.job_type", "j"),
    ("wandb.group", "g", "wandb.group", "g"),
    ("wandb.notes", "no", "wandb.notes", "no"),
    ("wandb.tags", ["a", "b"], "wandb.tags", ["a", "b"]),
    ("wandb.config", {"x": 1}, "wandb.config", {"x": 1}),
    ("wandb.id_suffix", "timestamp", "wandb.id_suffix", "timestamp"),
    ("swanlab.project", "sp", "swanlab.project", "sp"),
    ("swanlab.name", "sn", "swanlab.name", "sn"),
    ("swanlab.config", {"y": 2}, "swanlab.config", {"y": 2}),
    ("swanlab.logdir", "/swan", "swanlab.logdir", "/swan"),
    ("swanlab.mode", "local", "swanlab.mode", "local"),
    ("swanlab.api_key", "k2", "swanlab.api_key", "k2"),
    ("tensorboard.path", "/tb", "tensorboard.path", "/tb"),
    ("trackio.mode", "local", "trackio.mode", "local"),
    ("trackio.project", "tp", "trackio.project", "tp"),
    ("trackio.name", "tn", "trackio.name", "tn"),
    ("trackio.space_id", "me/space", "trackio.space_id", "me/space"),
]


def ours(config, path):
    section, field = path.split(".")
    return getattr(getattr(config, section), field)


class TestTheRealClasses:
    def test_areal_has_no_field_that_is_not_known_here(self, areal):
        theirs = {
            field.name: {each.name for each in dataclasses.fields(field.default_factory)}
            for field in dataclasses.fields(areal.StatsLoggerConfig)
            if field.default_factory is not dataclasses.MISSING
        }
        assert theirs == {name: set(fields) for name, fields in FIELDS.items()}
        plain = {field.name for field in dataclasses.fields(areal.StatsLoggerConfig)} - theirs.keys()
        assert plain == {"experiment_name", "trial_name", "fileroot"}

    def test_every_field_has_a_row_in_the_tests(self):
        assert {row[0] for row in EVERY_FIELD} == {f"{name}.{field}" for name, part in FIELDS.items() for field in part}

    @pytest.mark.parametrize(("theirs", "value", "path", "expected"), EVERY_FIELD, ids=lambda part: str(part)[:20])
    def test_what_a_field_becomes(self, areal, theirs, value, path, expected):
        config = areal.BaseExperimentConfig(stats_logger=areal.StatsLoggerConfig(**NAMED))
        section, name = theirs.split(".")
        setattr(getattr(config.stats_logger, section), name, value)
        assert ours(resolve(config, {}), path) == expected

    def test_every_mode_of_areal_is_one_of_ours(self, areal):
        for section, kind in (("wandb", areal.WandBConfig), ("swanlab", areal.SwanlabConfig)):
            for mode in next(f for f in dataclasses.fields(kind) if f.name == "mode").metadata["choices"]:
                kind(mode=mode)
                assert ours(resolve({"stats_logger": {section: {"mode": mode}}}, {}), f"{section}.mode") == mode
        for mode in ("disabled", "online", "local"):
            areal.TrackioConfig(mode=mode)
            assert resolve({"stats_logger": {"trackio": {"mode": mode}}}, {}).trackio.mode == mode

    def test_a_config_as_it_comes_switches_nothing_on(self, areal, monkeypatch):
        monkeypatch.delenv("SWANLAB_API_KEY", raising=False)
        config = areal.GRPOConfig(experiment_name="e", trial_name="t")
        assert not resolve(config, {}).anything_on()

    def test_the_stats_logger_alone_is_taken_too(self, areal):
        config = resolve(areal.StatsLoggerConfig(**NAMED, tensorboard=areal.TensorBoardConfig("/tb")), {})
        assert (config.tensorboard.path, config.run.id) == ("/tb", "gsm8k_run1")

    def test_object_omegaconf_mapping_and_yaml_are_the_same(self, areal, tmp_path):
        config = areal.BaseExperimentConfig(
            experiment_name="e", trial_name="t", stats_logger=areal.StatsLoggerConfig(**NAMED)
        )
        config.stats_logger.wandb.mode = "offline"
        as_omegaconf = OmegaConf.structured(config)
        (tmp_path / "c.yaml").write_text(OmegaConf.to_yaml(as_omegaconf))
        forms = [config, as_omegaconf, dataclasses.asdict(config), tmp_path / "c.yaml"]
        found = [resolve(form, {}) for form in forms]
        assert found[0].wandb.mode == "offline"
        assert all(each.run.id == "gsm8k_run1" for each in found)
        assert found.count(found[0]) == len(found)

    def test_a_newer_areal_s_field_is_said_and_not_refused(self, areal, caplog):
        @dataclasses.dataclass
        class Newer(areal.StatsLoggerConfig):
            mlflow: str = "on"

        resolve(Newer(**NAMED), {})
        assert caplog.messages == ["stats_logger.mlflow: not known to this version of rltel, not taken over"]


class TestNames:
    def test_experiment_and_trial_stand_where_nothing_else_is_given(self):
        config = resolve({"stats_logger": NAMED}, {})
        user = getpass.getuser()
        assert (config.run.id, config.run.name) == ("gsm8k_run1", "run1")
        assert config.run.dir == f"/data/logs/{user}/gsm8k/run1"
        assert (config.wandb.project, config.wandb.name, config.wandb.group) == ("gsm8k", "run1", "gsm8k_run1")
        assert (config.swanlab.project, config.swanlab.name) == ("gsm8k", "run1_train")
        assert (config.trackio.project, config.trackio.name) == ("gsm8k", "run1")

    def test_a_user_without_a_name_has_a_folder_too(self, monkeypatch):
        def nobody():
            raise KeyError("uid not found")

        monkeypatch.setattr(getpass, "getuser", nobody)
        assert resolve({"stats_logger": NAMED}, {}).run.dir == "/data/logs/gsm8k/run1"

    def test_names_that_yaml_takes_for_numbers_are_names(self):
        config = resolve({"stats_logger": {**NAMED, "trial_name": 7, "wandb": {"name": 8}}}, {})
        assert (config.run.id, config.wandb.name) == ("gsm8k_7", "8")

    def test_those_of_the_whole_config_fill_in(self):
        given = {"experiment_name": "e", "trial_name": "t", "stats_logger": {"experiment_name": "???"}}
        assert resolve(given, {}).run.id == "e_t"

    def test_without_them_nothing_is_made_up(self):
        assert resolve({"stats_logger": {"tensorboard": {"path": "/tb"}}}, {}).run.id is None

    def test_what_areal_leaves_empty_is_not_set(self):
        """Its dataclasses have "" for no address and no key, None for no tags."""
        empty = {"wandb_base_url": "", "wandb_api_key": "", "tags": None, "config": None, "id_suffix": None}
        config = resolve({"stats_logger": {"wandb": empty}}, {"RLTEL_RUN_ID": "x"})
        assert (config.wandb.base_url, config.wandb.api_key, config.wandb.tags) == (None, None, [])
        assert config.wandb.id_suffix == "train"


class TestErrors:
    @pytest.mark.parametrize(
        ("section", "mode", "choices"),
        [
            ("wandb", "onlin", '"disabled", "online", "offline", "shared"'),
            ("wandb", "local", '"disabled", "online", "offline", "shared"'),
            ("swanlab", "shared", '"disabled", "cloud", "online", "local", "offline"'),
            ("trackio", "offline", '"disabled", "online", "local"'),
        ],
    )
    def test_areal_1134_invalid_modes_are_refused(self, section, mode, choices):
        assert problems_of({"stats_logger": {section: {"mode": mode}}}) == [
            f'stats_logger.{section}.mode: expected one of {choices}, got "{mode}"'
        ]

    def test_online_is_taken_for_swanlab(self):
        """The documentation of AReaL has it so; its 1.0.4 refuses it."""
        assert resolve({"stats_logger": {"swanlab": {"mode": "online"}}}, {}).swanlab.mode in ("online", "cloud")

    def test_areal_852_key_and_address_are_not_swapped(self):
        given = {"wandb_base_url": "http://w:1", "wandb_api_key": "k"}
        found = resolve({"stats_logger": {"wandb": given}}, {}).wandb
        assert (found.base_url, found.api_key) == ("http://w:1", "k")

    def test_all_are_named_at_once_as_the_trainer_has_them(self):
        given = {"wandb": {"tags": "a", "mod": "x"}, "tensorbord": {}, "trackio": 5, "trial_name": True}
        assert problems_of({"stats_logger": given}) == [
            'stats_logger.tensorbord: unknown key (did you mean "tensorboard"?)',
            "stats_logger.trial_name: expected a string, got true",
            'stats_logger.wandb.mod: unknown key (did you mean "mode"?)',
            'stats_logger.wandb.tags: expected a list (a string each), got "a"',
            "stats_logger.trackio: expected a mapping with strings as keys, got 5",
        ]

    def test_keys_do_not_show(self):
        (problem,) = problems_of({"stats_logger": {"wandb": {"wandb_api_key": ["geheim"]}}})
        assert problem == 'stats_logger.wandb.wandb_api_key: expected a string or null, got ["[redacted]"]'

    def test_what_cannot_be_resolved_is_said(self):
        (first, *_) = problems_of({"stats_logger": {"experiment_name": "${not.there}"}})
        assert first.startswith('stats_logger.experiment_name: expected a value, got the interpolation "${not.there}"')

    def test_a_section_that_is_none(self):
        assert problems_of({"stats_logger": 5}) == [
            "stats_logger: expected a mapping with strings as keys, got 5",
        ]

    @pytest.mark.parametrize("given", [None, {}])
    def test_an_empty_section_is_nothing(self, given):
        assert not resolve({"stats_logger": given}, {}).anything_on()


class TestBesideOurs:
    def test_ours_win_and_the_environment_over_both(self):
        given = {
            "stats_logger": {"wandb": {"mode": "offline", "project": "theirs", "entity": "theirs"}},
            "wandb": {"project": "ours", "entity": "ours"},
        }
        found = resolve_with_origins(given, {"RLTEL_WANDB_ENTITY": "outside"})
        assert (found.config.wandb.mode, found.config.wandb.project) == ("offline", "ours")
        assert found.config.wandb.entity == "outside"
        assert found.origins["wandb.mode"] == "stats_logger.wandb.mode"
        assert found.origins["wandb.project"] == "config"
        assert found.origins["wandb.entity"] == "RLTEL_WANDB_ENTITY"
