import pytest

from lanehost.embedded import embedded_model_path
from lanehost.text.model_text import load_model_text


@pytest.fixture(scope="session")
def embedded_text():
    """The text side of the embedded model."""
    return load_model_text(embedded_model_path())
