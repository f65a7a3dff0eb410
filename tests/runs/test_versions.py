"""Versions of what a program uses, without importing any of it."""

import platform
from importlib import metadata

from export.making import run_python
from rltel.runs.versions import versions
from rltel.version import VERSION


def test_python_ours_and_what_was_imported() -> None:
    found = versions()
    assert list(found)[:2] == ["python", "rltel"]
    assert (found["python"], found["rltel"]) == (platform.python_version(), VERSION)
    assert found["numpy"] == metadata.version("numpy")
    assert found["pytest"] == metadata.version("pytest")


def test_torch_is_named_and_not_imported() -> None:
    code = (
        "import sys\nfrom rltel.runs.versions import versions\nprint(versions().get('torch'), 'torch' in sys.modules)"
    )
    assert run_python(code).stdout.split() == [metadata.version("torch"), "False"]


def test_packages_whose_distribution_has_another_name() -> None:
    code = (
        "import rsl_rl, yaml\nfrom rltel.runs.versions import versions\nprint(versions()['rsl_rl'], versions()['yaml'])"
    )
    assert run_python(code).stdout.split() == [metadata.version("rsl-rl-lib"), metadata.version("PyYAML")]


def test_a_package_that_is_not_installed_says_its_version_itself() -> None:
    code = (
        "import sys, types\nfor name, version in (('mine', '1.2'), ('odd', 3)):\n"
        "    sys.modules[name] = types.ModuleType(name)\n    sys.modules[name].__version__ = version\n"
        "from rltel.runs.versions import versions\nprint(versions().get('mine'), versions().get('odd'))"
    )
    assert run_python(code).stdout.split() == ["1.2", "None"]
