"""Let a pipeline add bos and eos around a text."""

from tokenizers import Tokenizer as Pipeline
from tokenizers import processors


def add_ends(pipeline: Pipeline, *, bos: str | None, eos: str | None) -> None:
    """Replace what the pipeline adds around a text; None adds nothing on that side.

    Both tokens are in the pipeline's vocabulary.
    """
    pipeline.post_processor = processors.TemplateProcessing(
        single=[token for token in (bos, "$A", eos) if token],
        special_tokens=[(end, pipeline.token_to_id(end)) for end in {bos, eos} if end],
    )
