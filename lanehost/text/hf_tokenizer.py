"""Build a tokenizer from the tokenizer.json of a Hugging Face model folder.

tokenizer.json holds the whole pipeline, what it adds around a text included; as in the
reference, add_bos_token and add_eos_token of tokenizer_config.json do not change that. The
names of special tokens are read from tokenizer_config.json.
"""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Pipeline

from lanehost.errors import StartupFailed
from lanehost.text.hf_folder import SPECIAL_TOKENS, TOKENIZER, TOKENIZER_CONFIG, HfFolder
from lanehost.text.pieces import SPACE_MARK, Pieces, byte_level_piece, sentencepiece_piece
from lanehost.text.tokenizer import Tokenizer

_NAMED = ("bos", "eos", "unk", "pad", "sep", "cls", "mask")

# Ids without a token; models leave some free, up to a round number of rows.
_MAX_UNUSED_IDS = 65_536

_FIRST_SPACE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
_SENTENCEPIECE = [
    {"type": "Replace", "pattern": {"String": SPACE_MARK}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]


def tokenizer_from_folder(folder: HfFolder) -> Tokenizer:
    """Build the tokenizer that the folder describes.

    Raises:
        StartupFailed: a file or field is missing or wrong, or its decoder is not supported.
    """
    text = folder.need_text(TOKENIZER)
    try:
        pipeline = Pipeline.from_str(text)
    except Exception as err:
        raise StartupFailed(
            f"{folder.path / TOKENIZER} cannot be read ({err}); download it again"
        ) from err
    pipeline.no_truncation()
    pipeline.no_padding()
    named = [token for name in _NAMED if (token := special_token(folder, name))]
    _mark_special(pipeline, named)
    decoder = folder.need_fields(TOKENIZER).get("decoder")
    return Tokenizer(pipeline, _pieces(pipeline, folder, decoder))


def special_token(folder: HfFolder, name: str) -> str | None:
    """Give the text of a named special token ("bos", "eos", ...), None where there is none."""
    key = f"{name}_token"
    config = folder.fields(TOKENIZER_CONFIG)
    source = config if key in config else folder.fields(SPECIAL_TOKENS)
    token = source.get(key)
    content = token.get("content") if isinstance(token, dict) else token
    if content is not None and not isinstance(content, str):
        raise folder.wrong(TOKENIZER_CONFIG, key, f"is {content!r}, not a text")
    return content


def _mark_special(pipeline: Pipeline, tokens: list[str]) -> None:
    """Make named tokens special that tokenizer.json does not list as such."""
    special = {t.content for t in pipeline.get_added_tokens_decoder().values() if t.special}
    pipeline.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token in tokens
            if token not in special and pipeline.token_to_id(token) is not None
        ]
    )


def _pieces(pipeline: Pipeline, folder: HfFolder, decoder: Any) -> Pieces:
    """Read off what each id stands for; the pipeline's decoder says by which rule."""
    steps = decoder.get("decoders", [decoder]) if isinstance(decoder, dict) else [decoder]
    to_bytes = _rule(steps)
    if to_bytes is None:
        raise folder.wrong(
            TOKENIZER, "decoder", f"is {decoder!r}; supported are ByteLevel and SentencePiece's"
        )
    vocabulary = pipeline.get_vocab(with_added_tokens=True)
    added = pipeline.get_added_tokens_decoder()
    _check_ids(folder, vocabulary)
    table = [b""] * (1 + max(vocabulary.values(), default=-1))
    for token, token_id in vocabulary.items():
        # An added token is its own text, even where its letters are in the byte alphabet.
        table[token_id] = token.encode() if token_id in added else to_bytes(token)
    return Pieces(
        table=tuple(table),
        special=frozenset(token_id for token_id, token in added.items() if token.special),
        strips_first_space=_FIRST_SPACE in steps,
    )


def _check_ids(folder: HfFolder, vocabulary: dict[str, int]) -> None:
    """Refuse ids that would make the table of all ids far longer than the file."""
    limit = len(vocabulary) + _MAX_UNUSED_IDS
    for token, token_id in vocabulary.items():
        if token_id > limit:
            raise StartupFailed(
                f"{folder.path / TOKENIZER}: token {token!r} has id {token_id}, "
                f"the limit is {limit} for {len(vocabulary)} tokens"
            )


def _rule(steps: list[Any]) -> Callable[[str], bytes] | None:
    if [step.get("type") for step in steps if isinstance(step, dict)] == ["ByteLevel"]:
        return byte_level_piece
    if steps in (_SENTENCEPIECE, [*_SENTENCEPIECE, _FIRST_SPACE]):
        return sentencepiece_piece
    return None
