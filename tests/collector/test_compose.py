"""The compose file holds together: files, volumes and ports that exist, pinned images, and nothing beyond loopback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from collector.schema import listeners, loaded
from realparts.requirements import REPOSITORY

FOLDER = REPOSITORY / "collector-config" / "compose"
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
TEMPO: dict[str, Any] = yaml.safe_load((FOLDER / "tempo.yaml").read_text())
GRAFANA = SERVICES["grafana"]["environment"]


def mounts() -> list[tuple[str, str, str]]:
    """Service, source and target of each volume."""
    found = []
    for service, options in SERVICES.items():
        for volume in options["volumes"]:
            source, target = re.fullmatch(r"(\$\{.*?\}|[^:]+):([^:]+)(?::ro)?", volume).groups()  # type: ignore[union-attr]
            found.append((service, source, target))
    return found


def listening() -> dict[str, str]:
    """host:port of everything that listens, with who does."""
    (prometheus,) = (arg.partition("=")[2] for arg in SERVICES["prometheus"]["command"] if "listen-address" in arg)
    gateway = (FOLDER.parent / "gateway.yaml").read_text()
    of_collector = listeners(loaded(gateway, SERVICES["collector"]["environment"]))
    of_tempo = TEMPO["distributor"]["receivers"]["otlp"]["protocols"]
    server = TEMPO["server"]
    return {
        "prometheus": prometheus,
        "grafana": f"{GRAFANA['GF_SERVER_HTTP_ADDR']}:{GRAFANA['GF_SERVER_HTTP_PORT']}",
        "tempo http": f"{server['http_listen_address']}:{server['http_listen_port']}",
        "tempo grpc": f"{server['grpc_listen_address']}:{server['grpc_listen_port']}",
        **{f"tempo otlp {name}": options["endpoint"] for name, options in of_tempo.items()},
        **{f"collector {where}": listens for where, listens in of_collector},
    }


def test_there_are_the_four_and_what_they_need() -> None:
    assert {"prometheus", "grafana", "tempo", "collector"} <= SERVICES.keys()


def test_every_image_is_pinned() -> None:
    for options in SERVICES.values():
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+", options["image"])


def test_everything_listens_on_loopback_on_a_port_of_its_own() -> None:
    places = listening()
    assert len(places) == len(set(places.values())) == 9
    assert all(place.startswith("127.0.0.1:") for place in places.values())
    assert all("ports" not in options for options in SERVICES.values())
    assert {options["network_mode"] for options in SERVICES.values()} == {"host", "none"}


def test_processes_find_the_collector_where_otlp_is_by_default() -> None:
    assert {"127.0.0.1:4317", "127.0.0.1:4318"} <= set(listening().values())


def test_who_sends_or_asks_knows_where() -> None:
    places = listening()
    sent = SERVICES["collector"]["environment"]
    assert sent["COLLECTOR_METRICS_URL"] == f"http://{places['prometheus']}/api/v1/otlp"
    assert "--web.enable-otlp-receiver" in SERVICES["prometheus"]["command"]
    assert sent["COLLECTOR_TRACES_URL"] == f"http://{places['tempo otlp http']}"
    sources = yaml.safe_load((FOLDER / "grafana" / "datasources.yaml").read_text())["datasources"]
    assert {source["type"]: source["url"] for source in sources} == {
        "prometheus": f"http://{places['prometheus']}",
        "tempo": f"http://{places['tempo http']}",
    }


def test_the_scraped_collectors_are_among_what_listens() -> None:
    scraped = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())["scrape_configs"][1]["static_configs"][0]
    assert set(scraped["targets"]) & set(listening().values()) == {"127.0.0.1:8889"}


def test_every_mounted_file_is_here_and_every_volume_declared() -> None:
    for _, source, _ in mounts():
        if source.startswith("."):
            assert (FOLDER / source).exists() or "dashboards" in source, source
        elif not source.startswith("${"):
            assert source in COMPOSE["volumes"]
    assert {source for _, source, _ in mounts()} >= COMPOSE["volumes"].keys()


def test_every_file_that_a_command_names_is_mounted() -> None:
    for service, options in SERVICES.items():
        targets = [target for of, _, target in mounts() if of == service]
        for argument in options.get("command", []):
            path = argument.rpartition("=")[2]
            if path.startswith("/"):
                assert any(path == target or path.startswith(f"{target}/") for target in targets), (service, path)


def test_what_is_needed_first_is_a_service() -> None:
    for options in SERVICES.values():
        assert set(options.get("depends_on", [])) <= SERVICES.keys()


def test_rules_and_targets_are_where_prometheus_looks() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    home = Path("/etc/prometheus")
    of_prometheus = {target: source for service, source, target in mounts() if service == "prometheus"}
    (rules,) = config["rule_files"]
    assert (
        FOLDER / of_prometheus[str(home.parent / "dashboards" / "rules")]
    ).resolve() == REPOSITORY / "dashboards/rules"
    assert rules == "../dashboards/rules/*.yml"  # from the folder of the config
    (targets,) = config["scrape_configs"][0]["file_sd_configs"][0]["files"]
    written = SERVICES["targets"]["command"][3]
    assert of_prometheus[str(home / Path(targets).parent)] == "targets"
    assert ("targets", "targets", str(Path(written).parent)) in mounts()


def test_grafana_finds_the_dashboards() -> None:
    (provider,) = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())["providers"]
    of_grafana = {target: source for service, source, target in mounts() if service == "grafana"}
    assert (FOLDER / of_grafana[provider["options"]["path"]]).resolve() == REPOSITORY / "dashboards"


def test_no_password_is_in_the_file() -> None:
    assert GRAFANA["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")
