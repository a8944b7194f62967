"""Build a tokenizer from the metadata of a GGUF file.

Two kinds: byte-level merges (`gpt2`, with the word of a family) and SentencePiece with
scores (`llama`). What is not known to be built faithfully is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gguf import TokenType
from tokenizers import AddedToken, models, normalizers, processors
from tokenizers import Tokenizer as Pipeline

from lanehost.errors import StartupFailed
from lanehost.text.byte_level_families import BYTE_LEVEL_FAMILIES
from lanehost.text.gguf_fields import GgufFields
from lanehost.text.pieces import SPACE_MARK, Pieces, byte_level_piece, sentencepiece_piece
from lanehost.text.tokenizer import Tokenizer

# Every cut of a token is looked up; the longest that are known have less than a hundred.
_MAX_SCORED_CHARS = 1_024


def tokenizer_from_gguf(fields: GgufFields) -> Tokenizer:
    """Build the tokenizer that the file describes.

    Raises:
        StartupFailed: a field is missing or wrong, or the family is not supported.
    """
    model = fields.need("tokenizer.ggml.model", str)
    if model == "gpt2":
        return _byte_level(fields)
    if model == "llama":
        return _sentencepiece(fields)
    raise StartupFailed(
        f"{fields.path}: tokenizer.ggml.model is {model!r}, supported are 'gpt2' and 'llama'; "
        "serve this model from its Hugging Face folder"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Vocabulary:
    """The tokens of the file by id, and what kind each is."""

    tokens: list[str]
    types: list[TokenType]

    def ids(self) -> dict[str, int]:
        """Give the id of each token; of equal ones the first, and unused ones have none."""
        by_token: dict[str, int] = {}
        for token_id, (token, token_type) in enumerate(zip(self.tokens, self.types, strict=True)):
            if token_type is not TokenType.UNUSED:
                by_token.setdefault(token, token_id)
        return by_token

    def special_ids(self) -> frozenset[int]:
        special = (TokenType.CONTROL, TokenType.UNKNOWN)
        return frozenset(i for i, token_type in enumerate(self.types) if token_type in special)

    def added_tokens(self) -> list[AddedToken]:
        """Give the tokens that are found in text as they are spelled, before any merge."""
        added = (TokenType.CONTROL, TokenType.UNKNOWN, TokenType.USER_DEFINED)
        return [
            AddedToken(token, normalized=False)
            for token, token_type in zip(self.tokens, self.types, strict=True)
            if token and token_type in added
        ]


def _byte_level(fields: GgufFields) -> Tokenizer:
    word = fields.get("tokenizer.ggml.pre", str)
    family = BYTE_LEVEL_FAMILIES.get(word or "")
    if family is None:
        raise StartupFailed(
            f"{fields.path}: tokenizer.ggml.pre is {word!r}, supported are "
            f"{', '.join(sorted(BYTE_LEVEL_FAMILIES))}; "
            "serve this model from its Hugging Face folder"
        )
    vocabulary = _read_vocabulary(fields)
    ids = vocabulary.ids()
    pipeline = Pipeline(
        models.BPE(ids, _read_merges(fields, ids), ignore_merges=family.whole_words_first)
    )
    if family.composes:
        pipeline.normalizer = normalizers.NFC()
    pipeline.pre_tokenizer = family.pre_tokenizer()
    pipeline.add_tokens(vocabulary.added_tokens())
    _add_ends(pipeline, fields, vocabulary.tokens, adds_bos=family.adds_bos)
    table = tuple(map(_byte_level_bytes, vocabulary.tokens, vocabulary.types))
    return Tokenizer(pipeline, Pieces(table=table, special=vocabulary.special_ids()))


def _byte_level_bytes(token: str, token_type: TokenType) -> bytes:
    if token_type is TokenType.NORMAL:
        return byte_level_piece(token)
    # Unused ones fill the table up to the model's rows and stand for nothing.
    return b"" if token_type is TokenType.UNUSED else token.encode()


def _sentencepiece(fields: GgufFields) -> Tokenizer:
    vocabulary = _read_vocabulary(fields)
    scores = fields.need_list("tokenizer.ggml.scores", float)
    if len(scores) != len(vocabulary.tokens):
        raise StartupFailed(
            f"{fields.path}: tokenizer.ggml.scores has {len(scores)} entries for "
            f"{len(vocabulary.tokens)} tokens; convert the model again, with its tokenizer"
        )
    unknown_id = fields.get("tokenizer.ggml.unknown_token_id", int)
    bpe = models.BPE(
        vocabulary.ids(),
        _merges_of_scores(fields.path, vocabulary, scores),
        unk_token=None if unknown_id is None else _token_at(fields, vocabulary.tokens, unknown_id),
        fuse_unk=True,
        byte_fallback=True,
    )
    pipeline = Pipeline(bpe)
    prefixes = fields.get("tokenizer.ggml.add_space_prefix", bool) is not False
    to_marks = normalizers.Replace(" ", SPACE_MARK)
    pipeline.normalizer = (
        normalizers.Sequence([normalizers.Prepend(SPACE_MARK), to_marks]) if prefixes else to_marks
    )
    pipeline.add_tokens(vocabulary.added_tokens())
    _add_ends(pipeline, fields, vocabulary.tokens, adds_bos=True)
    pieces = Pieces(
        table=tuple(map(sentencepiece_piece, vocabulary.tokens)),
        special=vocabulary.special_ids(),
        strips_first_space=prefixes,
    )
    return Tokenizer(pipeline, pieces)


def _merges_of_scores(
    path: Path, vocabulary: _Vocabulary, scores: list[float]
) -> list[tuple[str, str]]:
    """List every pair of tokens that makes a token, the best score first.

    SentencePiece merges the neighbours whose union scores best; a list of pairs in the
    order of that score makes the same choices.
    """
    known = {
        token: scores[token_id]
        for token_id, (token, token_type) in enumerate(
            zip(vocabulary.tokens, vocabulary.types, strict=True)
        )
        if token_type is TokenType.NORMAL
    }
    for token in known:
        if len(token) > _MAX_SCORED_CHARS:
            raise StartupFailed(
                f"{path}: tokenizer.ggml.tokens: {token[:32]!r}… has {len(token)} characters, "
                f"the limit is {_MAX_SCORED_CHARS}"
            )
    ranked = [
        (-score, -cut, token)
        for token, score in known.items()
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return [(token[:-cut], token[-cut:]) for _, cut, token in sorted(ranked)]


def _read_vocabulary(fields: GgufFields) -> _Vocabulary:
    tokens = fields.need_list("tokenizer.ggml.tokens", str)
    types = fields.need_list("tokenizer.ggml.token_type", int)
    if len(tokens) != len(types):
        raise StartupFailed(
            f"{fields.path}: tokenizer.ggml.token_type has {len(types)} entries for "
            f"{len(tokens)} tokens; convert the model again, with its tokenizer"
        )
    try:
        return _Vocabulary(tokens=tokens, types=[TokenType(token_type) for token_type in types])
    except ValueError as err:
        raise StartupFailed(f"{fields.path}: tokenizer.ggml.token_type: {err}") from err


def _read_merges(fields: GgufFields, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Read the merges, and check what the pipeline takes on trust: that all tokens exist."""
    merges: list[tuple[str, str]] = []
    for index, merge in enumerate(fields.need_list("tokenizer.ggml.merges", str)):
        left, _, right = merge.partition(" ")
        if left not in ids or right not in ids or left + right not in ids:
            raise StartupFailed(
                f"{fields.path}: tokenizer.ggml.merges: entry {index}, {merge!r}, has a token "
                "that is not in tokenizer.ggml.tokens; convert the model again"
            )
        merges.append((left, right))
    return merges


def _token_at(fields: GgufFields, tokens: list[str], token_id: int) -> str:
    if not 0 <= token_id < len(tokens):
        raise StartupFailed(
            f"{fields.path}: token id {token_id} is outside the vocabulary of {len(tokens)} tokens"
        )
    return tokens[token_id]


def _add_ends(pipeline: Pipeline, fields: GgufFields, tokens: list[str], *, adds_bos: bool) -> None:
    """Let the pipeline add bos and eos around a text, as the file says or its family does."""
    stated = fields.get("tokenizer.ggml.add_bos_token", bool)
    wanted = {
        "bos": adds_bos if stated is None else stated,
        "eos": fields.get("tokenizer.ggml.add_eos_token", bool) is True,
    }
    ends = []
    for name in (name for name, is_wanted in wanted.items() if is_wanted):
        stated_id = fields.need(f"tokenizer.ggml.{name}_token_id", int)
        token = _token_at(fields, tokens, stated_id)
        token_id = pipeline.token_to_id(token)
        if token and token_id is None:
            raise StartupFailed(
                f"{fields.path}: token id {stated_id}, {token!r}, is unused and cannot be {name}"
            )
        if token:
            ends.append({"id": name, "ids": [token_id], "tokens": [token]})
    # By these names, because a token may be spelled like a word of the template.
    names = [end["id"] for end in ends]
    single = [*(["bos"] if "bos" in names else []), "$A", *(["eos"] if "eos" in names else [])]
    pipeline.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
