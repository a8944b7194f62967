import pytest

from lanehost.errors import StartupFailed
from lanehost.master import make_card
from lanehost.settings import EngineSettings, LineSettings, RankGroupSettings, ServeSettings
from tests.support.fake_ranks import VOCAB_SIZE, fake_facts
from tests.support.fake_text import make_text


def settings(tmp_path, **values):
    return ServeSettings(
        ranks=RankGroupSettings(model_path=tmp_path), line=LineSettings(max_waiting=7), **values
    )


def test_the_card_holds_what_ranks_text_and_operator_say(tmp_path):
    card = make_card(settings(tmp_path), make_text(), fake_facts())
    assert (card.name, card.vocab_size, card.kv_tokens) == ("letters", VOCAB_SIZE, 128)
    assert (card.max_waiting, card.default_sampling.temperature) == (7, 0.0)
    assert (card.config_digest, card.max_streams) == (fake_facts().config_digest, 1024)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_card_says_whether_prompts_are_kept(tmp_path, is_on):
    asked = settings(tmp_path, engine=EngineSettings(prompt_cache=is_on))
    assert make_card(asked, make_text(), fake_facts()).has_prompt_cache is is_on


def test_the_operator_s_name_of_the_model_wins(tmp_path):
    assert (
        make_card(settings(tmp_path, model_name="mine"), make_text(), fake_facts()).name == "mine"
    )


def test_a_tokenizer_and_weights_of_two_models_are_refused_with_both_numbers(tmp_path):
    text = make_text()
    object.__setattr__(text, "vocab_size", 300)
    with pytest.raises(StartupFailed, match=r"300 token ids, the weights 251"):
        make_card(settings(tmp_path), text, fake_facts())
