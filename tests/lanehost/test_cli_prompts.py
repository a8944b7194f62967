"""Files that the command line reads; test_cli_client.py has chats."""

import click
import pytest

from lanehost.cli_prompts import ImageFile, read_chat, read_image


def test_an_image_s_file_is_read(tmp_path):
    path = tmp_path / "cat.png"
    path.write_bytes(b"file")
    image = ImageFile().convert(str(path), None, None)
    assert image.data == b"file"
    assert ImageFile().convert(image, None, None) is image


@pytest.mark.parametrize(("name", "said"), [("none.png", "No such file"), ("", "Is a directory")])
def test_one_that_cannot_be_read_is_named_with_the_reason(tmp_path, name, said):
    with pytest.raises(click.BadParameter, match=f"{name}: {said}"):
        read_image(f"{tmp_path}/{name}")


def test_a_chat_is_a_list_of_messages_or_an_object_that_has_it(tmp_path):
    chat, path = '[{"role": "user", "content": "hi"}]', tmp_path / "chat.json"
    for text in (chat, f'{{"messages": {chat}}}'):
        path.write_text(text)
        with path.open() as file:
            assert read_chat(file) == [{"role": "user", "content": "hi"}]
