"""The image of experts' loads, read by an imaging library."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from PIL import Image

from rltel.export.tensorboard.event_file import protos
from rltel.export.tensorboard.moe_heatmap import split_off

WHITE, GREY, BLUE, RED = (255, 255, 255), (128, 128, 128), (33, 102, 172), (178, 24, 43)
Rows = dict[int, list[float]]


def values(rows: Rows, what: str = "tokens", prefix: str = "") -> dict[str, float]:
    return {
        f"{prefix}moe_balance/layer_{layer}/expert_{expert}/{what}": value
        for layer, loads in rows.items()
        for expert, value in enumerate(loads)
    }


def drawn(given: dict[str, float], tag: str = "moe_balance/expert_loads") -> Any:
    _, images = split_off(given, protos())
    image = images[tag].image
    read = Image.open(io.BytesIO(image.encoded_image_string))
    assert (read.format, read.size) == ("PNG", (image.width, image.height))
    return read.convert("RGB")


def colors(image: Any, layers: int, experts: int) -> Sequence[Sequence[tuple[int, int, int]]]:
    """The colour in the middle of each cell."""
    side = image.width // experts
    assert image.size == (side * experts, side * layers)
    middle = side // 2
    return [
        [image.getpixel((column * side + middle, row * side + middle)) for column in range(experts)]
        for row in range(layers)
    ]


def test_colours_say_how_far_from_ideal_each_expert_is() -> None:
    found = colors(drawn(values({0: [2, 2, 2, 2], 1: [0, 0, 8, 0], 2: [0, 2, 2, 4]})), 3, 4)
    assert found[0] == [WHITE] * 4
    assert found[1] == [BLUE, BLUE, RED, BLUE]
    assert found[2] == [BLUE, WHITE, WHITE, RED]


def test_layers_are_in_the_order_of_their_ids() -> None:
    assert [row[0] for row in colors(drawn(values({10: [1, 0], 9: [0, 1]})), 2, 2)] == [BLUE, RED]


def test_what_is_not_there_is_grey() -> None:
    assert colors(drawn(values({0: [0, 0, 0], 1: [1, 1]})), 2, 3) == [[GREY] * 3, [WHITE, WHITE, GREY]]


def test_shares_alone_do() -> None:
    assert colors(drawn(values({0: [50, 50], 1: [100, 0]}, "load_percent")), 2, 2) == [[WHITE] * 2, [RED, BLUE]]


def test_each_scope_has_an_image_and_other_numbers_stay() -> None:
    given = {**values({0: [1.0]}, prefix="actor/"), **values({0: [1.0]}), "moe_balance/layer_0/max_over_ideal": 1.0}
    numbers, images = split_off(given, protos())
    assert numbers == {"moe_balance/layer_0/max_over_ideal": 1.0}
    assert set(images) == {"actor/moe_balance/expert_loads", "moe_balance/expert_loads"}


@pytest.mark.parametrize(("layers", "experts"), [(1, 1), (48, 128), (2, 1500)])
def test_any_size_fits(layers: int, experts: int) -> None:
    image = drawn(values({n: [1.0] * experts for n in range(layers)}))
    assert max(image.size) <= 1500
    assert colors(image, layers, experts)[-1][-1] == WHITE
