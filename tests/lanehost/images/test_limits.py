"""The bounds of images."""

import dataclasses

import pytest

from tests.support.image_files import LIMITS


def test_limits_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        LIMITS.max_images = 2
