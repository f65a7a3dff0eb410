"""Reads event files with TensorBoard's own readers: the accumulator, and the data server behind its pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.context import RequestContext
from tensorboard.data import server_ingester
from tensorboard.util.grpc_util import ChannelCredsType

from realparts.requirements import require

_STARTS = 3
_ALL = {"scalars": 0, "histograms": 0, "tensors": 0}
Steps = dict[str, list[int]]


def event_files(folder: Path) -> list[Path]:
    """In the order in which TensorBoard reads them."""
    return sorted(folder.glob("*tfevents*"))


def all_events(folder: Path) -> list[Event]:
    """Every event of a folder, in the order in which TensorBoard reads them."""
    return [Event.FromString(raw) for file in event_files(folder) for raw in RawEventFileLoader(str(file)).Load()]


def accumulated(folder: Path) -> EventAccumulator:
    """The folder's run, with nothing sampled away."""
    reader = EventAccumulator(str(folder), size_guidance=_ALL)
    reader.Reload()
    return reader


def scalars(folder: Path) -> dict[str, list[Any]]:
    """The scalar events of each tag."""
    reader = accumulated(folder)
    return {tag: reader.Scalars(tag) for tag in reader.Tags()["scalars"]}


def steps(folder: Path) -> Steps:
    """The steps of each tag."""
    return {tag: [point.step for point in points] for tag, points in scalars(folder).items()}


class Pages:
    """What TensorBoard's pages show: its data server, which loads folders in its own way, and bit by bit."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def scalars(self) -> dict[str, dict[str, list[tuple[int, float]]]]:
        """Of each run and tag: steps and values, as far as they are loaded."""
        found = self._provider.read_scalars(RequestContext(), experiment_id="", plugin_name="scalars", downsample=9_999)
        return {
            run: {tag: [(point.step, point.value) for point in points] for tag, points in tags.items()}
            for run, tags in found.items()
        }

    def tensors(self, plugin: str) -> dict[str, dict[str, list[Any]]]:
        """Of each run and tag of a plugin (``histograms``, ``text``): the data."""
        found = self._provider.read_tensors(RequestContext(), experiment_id="", plugin_name=plugin, downsample=9_999)
        return {run: dict(tags) for run, tags in found.items()}

    def contents(self, plugin: str) -> dict[str, dict[str, bytes]]:
        """Of each run and tag of a plugin: what it keeps beside the data."""
        found = self._provider.list_tensors(RequestContext(), experiment_id="", plugin_name=plugin)
        return {run: {tag: made.plugin_content for tag, made in tags.items()} for run, tags in found.items()}


@contextmanager
def pages(folder: Path) -> Iterator[Pages]:
    """Runs the data server on a folder."""
    ingester = _started(folder)
    try:
        yield Pages(ingester.data_provider)
    finally:
        ingester._stdin_handle.close()  # it ends with its input


def _started(folder: Path) -> Any:
    """TensorBoard gives its server some seconds for the first answer, which a stalled machine may need more than."""
    failures = []
    while len(failures) < _STARTS:
        ingester = server_ingester.SubprocessServerDataIngester(
            server_binary=_server(),
            logdir=str(folder),
            reload_interval=1,
            channel_creds_type=ChannelCredsType.LOCAL,
            samples_per_plugin=dict.fromkeys(("scalars", "histograms", "text", "hparams"), 0),
        )
        try:
            ingester.start()
        except server_ingester.DataServerStartupError as failed:
            ingester._stdin_handle.close()
            failures.append(failed)
        else:
            return ingester
    raise ExceptionGroup("the data server did not start", failures)


def _server() -> Any:
    try:
        found = server_ingester.get_server_binary()
    except server_ingester.NoDataServerError:
        found = None
    return require("TensorBoard's data server", found, "the wheel tensorboard-data-server has it on most platforms")
