"""The options of images."""

from lanehost.cli import main
from lanehost.cli_images import IMAGE_OPTIONS, build_images
from lanehost.settings import ImageSettings


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
    assert len(IMAGE_OPTIONS) == 6
