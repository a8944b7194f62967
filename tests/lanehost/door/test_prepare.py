import asyncio
import threading

import pytest

from lanehost.door.prepare import MAX_WORKERS, Preparer
from lanehost.errors import DoesNotFit
from lanehost.job import TextPrompt, TokenPrompt
from tests.support.cards import make_card
from tests.support.fake_text import LetterTokenizer, make_text


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


async def test_token_ids_need_no_worker():
    preparer = Preparer(make_text(), card=make_card())
    assert await preparer.prompt_ids(TokenPrompt((5,))) == (5,)


async def test_bytes_count_not_characters():
    preparer = Preparer(make_text(), card=make_card(context_length=10, kv_tokens=10))
    with pytest.raises(DoesNotFit):
        await preparer.prompt_ids(TextPrompt("é" * 5))
