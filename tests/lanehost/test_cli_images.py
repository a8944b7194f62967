"""The options of images."""

from lanehost.cli import main
from lanehost.cli_images import IMAGE_OPTIONS, build_images, max_staged_tokens
from lanehost.settings import IDLE_STAGED_ROWS, ImageSettings


def options_of(*args):
    return main.commands["serve"].make_context("serve", ["--model", "/", *args]).params


def test_the_defaults_are_those_of_the_settings():
    assert build_images(options_of()) == ImageSettings()


def test_sizes_are_read_as_elsewhere():
    options = options_of("--max-image-bytes", "2MiB", "--max-held-images", "1GB")
    settings = build_images(options)
    assert settings.limits.max_image_bytes == 2 << 20
    assert settings.max_held_bytes == 1_000_000_000


def test_every_option_is_one_of_serve():
    assert len(IMAGE_OPTIONS) == 10


def test_a_pass_that_nobody_waits_for_has_as_many_rows_as_one_beside_others():
    assert max_staged_tokens(options_of("--staged-rows", "100")) == IDLE_STAGED_ROWS
    assert max_staged_tokens(options_of("--staged-rows", "5000")) == 5000
