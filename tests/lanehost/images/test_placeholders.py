"""From chats with images to ids: those of the reference's processor."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

from lanehost.errors import InvalidRequest
from lanehost.images.placeholders import encode_chat
from lanehost.job import ChatMessage, ImagePart, Role, TextPart, UploadedImage
from lanehost.text.image_text import read_image_text
from tests.support import image_files as files
from tests.support import tiny_gemma3 as tiny
from tests.support.image_folder import (
    CONFIG,
    template_of,
    tokenizer_from_folder,
    write_image_folder,
)

PICTURE = ImagePart(b"file")
SOFT = tiny.TOKEN_ID["<image_soft_token>"]
BEGIN, END = tiny.TOKEN_ID["<start_of_image>"], tiny.TOKEN_ID["<end_of_image>"]
WORDS = ("<start_of_image>", "<image_soft_token>", "<end_of_image>")


class Model:
    """The text side of the tiny model."""

    def __init__(self, path):
        self.folder = write_image_folder(path)
        self.tokenizer = tokenizer_from_folder(self.folder)
        self.template = template_of(self.folder)
        self.images = read_image_text(self.folder, CONFIG, self.tokenizer).images

    def encode(self, *messages, render=None):
        return encode_chat(
            messages,
            images=self.images,
            render=render or self.template.render,
            encode=self.tokenizer.encode_rendered,
        )


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return Model(tmp_path_factory.mktemp("gemma") / "m")


@pytest.fixture(scope="module")
def reference(model):
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(model.folder.path / "tokenizer.json"),
        bos_token="<bos>",
        eos_token="<eos>",
        extra_special_tokens={
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
            "image_token": "<image_soft_token>",
        },
    )
    return Gemma3Processor(
        image_processor=Gemma3ImageProcessorPil(**tiny._PREPROCESSOR | {"do_convert_rgb": True}),
        tokenizer=tokenizer,
        chat_template=tiny.TEMPLATE,
        image_seq_length=tiny.IMAGE_TOKENS,
    )


def user(*parts):
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return ChatMessage(role=Role.USER, content=content)


def said(content, role=Role.ASSISTANT):
    return ChatMessage(role=role, content=content)


CHATS = {
    "an image and a question": (user(PICTURE, "What is this?"),),
    "a question and an image": (user("Look:", PICTURE),),
    "an image alone": (user(PICTURE),),
    "images side by side": (user(PICTURE, PICTURE, "Which is larger?"),),
    "text between": (user("one", PICTURE, " two ", UploadedImage("u"), "three"),),
    "over several turns": (
        said("Be brief.", Role.SYSTEM),
        user(PICTURE, "What is this?"),
        said("A hat."),
        user("And", PICTURE, "this?"),
    ),
    "no image": (said("Just text.", Role.USER),),
    "whitespace around": (user("  a\n", PICTURE, "\n\n b  "),),
}


def as_reference(messages):
    return [
        {
            "role": message.role.value,
            "content": message.text
            if not message.images
            else [
                {"type": "text", "text": part.text}
                if isinstance(part, TextPart)
                else {"type": "image"}
                for part in message.content
            ],
        }
        for message in messages
    ]


@pytest.mark.parametrize("messages", CHATS.values(), ids=CHATS)
def test_ids_are_those_of_the_reference_s_processor(model, reference, messages):
    text = reference.apply_chat_template(
        as_reference(messages), tokenize=False, add_generation_prompt=True
    )
    num_images = sum(len(message.images) for message in messages)
    pictures = [files.picture(seed=seed) for seed in range(num_images)]
    made = reference(
        text=text, images=pictures or None, add_special_tokens=False, return_tensors=None
    )
    (expected,) = made["input_ids"]
    chat = model.encode(*messages)
    assert chat.prompt_ids == list(expected)
    assert len(chat.starts) == num_images


@pytest.mark.parametrize("messages", CHATS.values(), ids=CHATS)
def test_each_start_is_that_of_a_block_between_its_two_words(model, messages):
    chat = model.encode(*messages)
    for start in chat.starts:
        block = chat.prompt_ids[start - 1 : start + 5]
        assert block == [BEGIN, SOFT, SOFT, SOFT, SOFT, END]
    assert chat.prompt_ids.count(SOFT) == 4 * len(chat.starts)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("images", [(), (PICTURE,), (PICTURE, PICTURE)])
def test_a_text_that_spells_a_word_stays_text(model, word, images):
    chat = model.encode(user(f"say {word} or{word}", *images, f"{word}{word} !"))
    assert len(chat.starts) == len(images)
    assert chat.prompt_ids.count(SOFT) == 4 * len(images)
    assert chat.prompt_ids.count(BEGIN) == chat.prompt_ids.count(END) == len(images)
    text = model.tokenizer.decode(chat.prompt_ids, keep_special=True)
    for start in chat.starts:
        assert chat.prompt_ids[start - 1] == BEGIN
    assert text.replace(model.images.block, "").count(word) == 4


def test_other_special_tokens_in_a_text_are_what_they_were(model):
    spelled = said("a<end_of_turn>b", Role.USER)
    rendered = model.template.render((spelled,))
    assert model.encode(spelled).prompt_ids == model.tokenizer.encode_rendered(rendered)
    beside = model.encode(said("a<end_of_turn>b<start_of_image>", Role.USER))
    assert beside.prompt_ids.count(tiny.TOKEN_ID["<end_of_turn>"]) == 2


def test_what_looks_like_our_own_mark_stays_text(model):
    text = "\ue0000.0\ue001 <start_of_image> \ue0001.0\ue001"
    chat = model.encode(said(text, Role.USER))
    assert text in model.tokenizer.decode(chat.prompt_ids, keep_special=True)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("nothing", "has 0 places for 1 images"),
        ("<start_of_image><start_of_image>", "has 2 places for 1 images"),
        ("<start_of_image> <image_soft_token>", "has 5 places for rows of images"),
    ],
)
def test_a_template_that_has_not_one_place_for_each_image_is_refused(model, written, words):
    with pytest.raises(InvalidRequest) as refusal:
        model.encode(user(PICTURE), render=lambda messages: written)
    assert refusal.value.field == "chat"
    assert words in refusal.value.reason


def test_a_word_that_comes_about_between_two_parts_is_refused_and_no_image(model):
    with pytest.raises(InvalidRequest, match="has 2 places for 1 images"):
        model.encode(user("<start_of_", "image>", PICTURE))


def test_rows_that_stand_apart_are_refused(model):
    images = replace(model.images, soft=f"{model.images.soft} ")
    with pytest.raises(InvalidRequest, match="places for rows"):
        encode_chat(
            (user(PICTURE),),
            images=images,
            render=model.template.render,
            encode=model.tokenizer.encode_rendered,
        )


parts = st.lists(
    st.one_of(st.just(PICTURE), st.text("a <>\n", max_size=5), st.sampled_from(WORDS)),
    min_size=1,
    max_size=5,
)


@settings(deadline=None, max_examples=60)
@given(parts)
def test_there_are_as_many_blocks_as_images_whatever_the_texts_say(model, parts):
    chat = model.encode(user(*parts))
    assert len(chat.starts) == sum(part is PICTURE for part in parts)
    assert list(chat.starts) == sorted(chat.starts)
