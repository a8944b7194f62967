import asyncio
import threading

import pytest

from lanehost.door.prepare import MAX_WORKERS, PreparedPrompt, Preparer
from lanehost.errors import DoesNotFit, InvalidRequest
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    ImagePart,
    Role,
    TextPart,
    TextPrompt,
    TokenPrompt,
)
from tests.support import image_files as files
from tests.support.cards import make_card
from tests.support.fake_engine import settle_loop
from tests.support.fake_text import IMAGES, LetterTokenizer, make_text


class GatedTokenizer(LetterTokenizer):
    """Counts how many texts are being tokenized, and waits to be let on."""

    def __init__(self):
        self.gate = threading.Event()
        self.all_busy = threading.Event()
        self.num_running = 0
        self.most_running = 0
        self._lock = threading.Lock()

    def encode(self, text):
        with self._lock:
            self.num_running += 1
            self.most_running = max(self.most_running, self.num_running)
            if self.num_running == MAX_WORKERS:
                self.all_busy.set()
        self.gate.wait(5)
        with self._lock:
            self.num_running -= 1
        return super().encode(text)


async def test_a_flood_of_texts_takes_no_more_than_its_share_of_workers():
    tokenizer = GatedTokenizer()
    text = make_text()
    object.__setattr__(text, "tokenizer", tokenizer)
    preparer = Preparer(text, card=make_card())
    flood = [asyncio.create_task(preparer.prompt_ids(TextPrompt("ab"))) for _ in range(6)]
    await asyncio.to_thread(tokenizer.all_busy.wait, 5)
    tokenizer.gate.set()
    assert await asyncio.gather(*flood) == [(97, 98)] * 6
    assert tokenizer.most_running == MAX_WORKERS


async def test_clients_that_leave_do_not_let_more_work_begin():
    tokenizer = GatedTokenizer()
    text = make_text()
    object.__setattr__(text, "tokenizer", tokenizer)
    preparer = Preparer(text, card=make_card())
    for _ in range(20):
        flood = asyncio.create_task(preparer.prompt_ids(TextPrompt("ab")))
        await asyncio.sleep(0)
        flood.cancel()
    honest = asyncio.create_task(preparer.prompt_ids(TextPrompt("cd")))
    await asyncio.to_thread(tokenizer.all_busy.wait, 5)
    tokenizer.gate.set()
    assert await honest == (99, 100)
    assert tokenizer.most_running == MAX_WORKERS


class SteppedTokenizer(LetterTokenizer):
    """Tokenizes one text each time that it is let on, and notes in which order."""

    def __init__(self):
        self.begun = []
        self.may_end = threading.Semaphore(0)

    def encode(self, text):
        self.begun.append(text)
        assert self.may_end.acquire(timeout=5)
        if text == "fails":
            raise InvalidRequest("text", "fails on purpose")
        return super().encode(text)


class Asking:
    """A preparer whose texts end when they are told to."""

    def __init__(self):
        self.tokenizer, text = SteppedTokenizer(), make_text()
        object.__setattr__(text, "tokenizer", self.tokenizer)
        self.preparer = Preparer(text, card=make_card())

    async def ask(self, text, scope):
        asked = asyncio.create_task(self.preparer.prompt_ids(TextPrompt(text), scope))
        await asyncio.sleep(0)
        return asked

    async def until_free(self, num_free):
        """Wait until so many turns are nobody's: what a thread has ended is known a bit later."""
        async with asyncio.timeout(5):
            while self.preparer._workers._num_free != num_free:
                await settle_loop(1)

    async def let_end(self, *asked):
        self.tokenizer.may_end.release(len(asked))
        return await asyncio.gather(*asked, return_exceptions=True)


async def test_one_text_waits_for_a_turn_of_each_other_scope_and_not_for_all_their_texts():
    asking = Asking()
    flood = [await asking.ask(f"a{n}", "a") for n in range(8)]
    flood += [await asking.ask(f"b{n}", "b") for n in range(8)]
    one = await asking.ask("c", "c")
    flood += [await asking.ask(f"a{n}", "a") for n in range(8, 10)]
    await asking.let_end(*flood, one)
    order = asking.tokenizer.begun
    assert order.index("c") <= MAX_WORKERS + 2
    for scope in "ab":
        of_scope = [text for text in order if text[0] == scope]
        assert of_scope == sorted(of_scope)


async def test_who_leaves_while_waiting_for_a_turn_takes_none():
    asking = Asking()
    busy = [await asking.ask("x", "a") for _ in range(MAX_WORKERS)]
    leaving = [await asking.ask("gone", scope) for scope in "aab"]
    last = await asking.ask("last", "b")
    for one in leaving:
        one.cancel()
    assert await asking.let_end(*busy, last) == [*[(ord("x"),)] * MAX_WORKERS, tuple(b"last")]
    assert asking.tokenizer.begun == [*["x"] * MAX_WORKERS, "last"]


async def test_who_leaves_at_the_moment_of_its_turn_hands_it_on():
    asking = Asking()
    busy = [await asking.ask("x", "a") for _ in range(MAX_WORKERS)]
    leaving = await asking.ask("gone", "b")
    asking.tokenizer.may_end.release()
    while asking.preparer._workers._waiting:
        await settle_loop(1)
    leaving.cancel()
    last = await asking.ask("last", "c")
    await asking.let_end(*busy, last)
    assert last.result() == tuple(b"last")
    assert asking.tokenizer.begun == [*["x"] * MAX_WORKERS, "last"]
    await asking.until_free(MAX_WORKERS)


async def test_who_leaves_in_the_middle_keeps_its_worker_busy_and_no_longer():
    asking = Asking()
    leaving = [await asking.ask("fails", "a") for _ in range(MAX_WORKERS)]
    for one in leaving:
        one.cancel()
    waiting = await asking.ask("b", "b")
    await asyncio.sleep(0)
    await asking.until_free(0)
    asking.tokenizer.may_end.release(MAX_WORKERS)
    assert await asking.let_end(waiting) == [(98,)]
    assert asking.tokenizer.begun == [*["fails"] * MAX_WORKERS, "b"]
    await asking.until_free(MAX_WORKERS)


async def test_token_ids_need_no_worker():
    preparer = Preparer(make_text(), card=make_card())
    assert await preparer.prompt_ids(TokenPrompt((5,))) == (5,)


async def test_bytes_count_not_characters():
    preparer = Preparer(make_text(), card=make_card(context_length=10, kv_tokens=10))
    with pytest.raises(DoesNotFit):
        await preparer.prompt_ids(TextPrompt("é" * 5))


CHAT = ChatPrompt(
    (
        ChatMessage(role=Role.SYSTEM, content="be brief"),
        ChatMessage(role=Role.USER, content="hat"),
        ChatMessage(role=Role.ASSISTANT, content="mat"),
        ChatMessage(role=Role.USER, content="sun"),
    )
)


async def test_a_chat_is_prepared_with_its_marks():
    preparer = Preparer(make_text(), card=make_card())
    prepared = await preparer.prepare(CHAT)
    assert prepared.prompt_ids == await preparer.prompt_ids(CHAT)
    before = [bytes(prepared.prompt_ids[:mark]).decode() for mark in prepared.marks]
    system = "<system>be brief<user>"
    assert before == [system, f"{system}hat<assistant>mat<user>"]


async def test_texts_and_token_ids_have_no_marks():
    preparer = Preparer(make_text(), card=make_card())
    assert await preparer.prepare(TextPrompt("ab")) == PreparedPrompt(prompt_ids=(97, 98))
    assert await preparer.prepare(TokenPrompt((5,))) == PreparedPrompt(prompt_ids=(5,))


async def test_a_chat_that_is_too_long_is_not_looked_at_for_marks():
    num_tokens = len((await Preparer(make_text(), card=make_card()).prepare(CHAT)).prompt_ids)
    for length, has_marks in ((num_tokens, True), (num_tokens - 1, False)):
        card = make_card(context_length=length, kv_tokens=4096)
        prepared = await Preparer(make_text(), card=card).prepare(CHAT)
        assert (len(prepared.prompt_ids), bool(prepared.marks)) == (num_tokens, has_marks)


@pytest.mark.parametrize("content", ["hat", "h" * 5000])
async def test_a_chat_is_refused_in_one_way_with_and_without_marks(content):
    preparer = Preparer(make_text(has_template=False), card=make_card())
    prompt = ChatPrompt((ChatMessage(role=Role.USER, content=content),))
    for prepare in (preparer.prepare, preparer.prompt_ids):
        with pytest.raises(DoesNotFit if len(content) > 4096 else InvalidRequest):
            await prepare(prompt)


async def test_when_nothing_is_kept_nobody_looks_for_marks():
    preparer = Preparer(make_text(), card=make_card(has_prompt_cache=False))
    prepared = await preparer.prepare(CHAT)
    assert prepared == PreparedPrompt(prompt_ids=await preparer.prompt_ids(CHAT))


def seen(*parts):
    content = tuple(TextPart(part) if isinstance(part, str) else part for part in parts)
    return ChatPrompt((ChatMessage(role=Role.USER, content=content),))


PICTURE = ImagePart(files.png())


async def test_a_chat_with_images_has_them_where_their_blocks_are():
    preparer = Preparer(make_text(images=IMAGES), card=make_card())
    prepared = await preparer.prepare(seen("a", PICTURE, "b", PICTURE))
    assert bytes(prepared.prompt_ids).decode() == "<user>a{|||}b{|||}"
    assert [(image.start, image.stop) for image in prepared.images] == [(8, 11), (14, 17)]
    assert {len(image.image.pixels) for image in prepared.images} == {24}
    assert prepared.marks == (6,)


async def test_a_chat_that_is_too_long_has_no_image_decoded():
    asked = seen("a", ImagePart(b"no picture"), "12345")
    preparer = Preparer(make_text(images=IMAGES), card=make_card(context_length=16))
    prepared = await preparer.prepare(asked)
    assert (len(prepared.prompt_ids), prepared.images, prepared.marks) == (17, (), ())
    with pytest.raises(InvalidRequest, match=r"images\[1\]"):
        await Preparer(make_text(images=IMAGES), card=make_card(context_length=17)).prepare(asked)


async def test_the_tokens_of_images_count_before_any_work():
    preparer = Preparer(make_text(images=IMAGES), card=make_card(context_length=12))
    with pytest.raises(DoesNotFit, match="3 bytes and images of 9 tokens, that is at least 12"):
        await preparer.prepare(seen("abc", PICTURE, PICTURE, PICTURE))


async def test_ids_alone_need_no_image_decoded():
    preparer = Preparer(make_text(images=IMAGES), card=make_card())
    ids = await preparer.prompt_ids(seen(ImagePart(b"no picture")))
    assert bytes(ids).decode() == "<user>{|||}"


async def test_a_model_without_images_refuses_before_it_renders():
    preparer = Preparer(make_text(has_template=False), card=make_card())
    for ask in (preparer.prepare, preparer.prompt_ids):
        with pytest.raises(InvalidRequest, match="takes no images"):
            await ask(seen("a", PICTURE))
