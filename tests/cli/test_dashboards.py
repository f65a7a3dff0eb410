"""``rltel dashboards``."""

from pathlib import Path

from typer.testing import CliRunner

from realparts.requirements import REPOSITORY
from rltel.cli import app
from rltel.dashboards import all_of_them, rules

RUN = CliRunner()


def test_export_writes_dashboards_and_rules(tmp_path: Path) -> None:
    done = RUN.invoke(app, ["dashboards", "export", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    written = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert written == {*all_of_them.files(), *rules.files()}
    assert "overview.json" in written
    assert "rules/learning.yml" in written


def test_what_is_in_the_repository_is_current() -> None:
    done = RUN.invoke(app, ["dashboards", "build", str(REPOSITORY / "dashboards"), "--check"])
    assert (done.exit_code, done.output) == (0, "")


def test_check_says_what_is_stale_and_writes_nothing(tmp_path: Path) -> None:
    RUN.invoke(app, ["dashboards", "export", str(tmp_path)])
    (tmp_path / "llm.json").write_text("{}")
    done = RUN.invoke(app, ["dashboards", "build", str(tmp_path), "--check"])
    assert done.exit_code == 1
    assert done.output.split() == ["stale:", str(tmp_path / "llm.json")]
    assert (tmp_path / "llm.json").read_text() == "{}"


def test_build_writes_what_is_stale(tmp_path: Path) -> None:
    RUN.invoke(app, ["dashboards", "export", str(tmp_path)])
    (tmp_path / "llm.json").unlink()
    done = RUN.invoke(app, ["dashboards", "build", str(tmp_path)])
    assert done.output.split() == ["written:", str(tmp_path / "llm.json")]
    assert (tmp_path / "llm.json").read_text("utf-8") == all_of_them.files()["llm.json"]


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = RUN.invoke(app, ["dashboards", "export", str(tmp_path / "file")])
    assert done.exit_code == 2
    assert "cannot write" in done.output


def test_page_is_the_page_of_the_docs() -> None:
    done = RUN.invoke(app, ["dashboards", "page"])
    assert done.output == (REPOSITORY / "docs" / "dashboards.md").read_text("utf-8")
