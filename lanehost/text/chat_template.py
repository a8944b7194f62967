"""Render a chat with the model's own template, in a sandbox."""

from lanehost.job import ChatMessage


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, *, bos_token: str, eos_token: str) -> None:
        """Compile the template."""
        raise NotImplementedError

    def render(self, messages: tuple[ChatMessage, ...]) -> str:
        """Render the chat up to where the model speaks next."""
        raise NotImplementedError
