"""Render a chat with the model's own template, in a sandbox.

A template comes with the model, its input from a client. It runs as the reference runs
it (same whitespace rules, same names), with three differences, all so that a reply
depends on the request alone and one chat cannot harm another:

- `strftime_now` is not defined: a template that asks for today's date gets none, and most
  then take the fixed date that they carry;
- what one rendering may do is bounded: its characters, its loop and macro steps, and the
  size of what `+`, `*` and `**` make (not what `~` or a filter makes in one step);
- any fault of the template on a chat is the chat's refusal, in the template's own words.

A message with images is given as the list of its parts, as the reference gives it; one without
is given as text, for many templates know nothing else.
"""

import json
from collections.abc import Callable
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lanehost.errors import InvalidRequest, StartupFailed
from lanehost.job import ChatMessage, TextPart

MAX_RENDERED_CHARS = 1 << 23
MAX_TEMPLATE_STEPS = 1_000_000

_STEP = "lanehost_step"

# What a sandboxed template can raise on a chat that it was not written for.
_TEMPLATE_FAULTS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)

# What the compiler and its folding of constants raise on a text that is no template.
_COMPILE_FAULTS = (*_TEMPLATE_FAULTS, SyntaxError, MemoryError)


class ChatTemplate:
    """A compiled chat template; rendering changes nothing in it."""

    __slots__ = ("_bos_token", "_eos_token", "_max_chars", "_max_steps", "_template")

    def __init__(
        self,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        max_chars: int = MAX_RENDERED_CHARS,
        max_steps: int = MAX_TEMPLATE_STEPS,
    ) -> None:
        """Compile the template.

        Raises:
            StartupFailed: it does not compile; says where and why.
        """
        self._bos_token = bos_token
        self._eos_token = eos_token
        self._max_chars = max_chars
        self._max_steps = max_steps
        try:
            self._template = _Sandbox(max_chars).from_string(source)
        except _COMPILE_FAULTS as err:
            line, why = getattr(err, "lineno", None), getattr(err, "message", None) or err
            raise StartupFailed(f"the chat template does not compile, line {line}: {why}") from err

    def render(self, messages: tuple[ChatMessage, ...]) -> str:
        """Render the chat up to where the model speaks next.

        Raises:
            InvalidRequest: the template refuses the chat, or a bound was met; field `chat`.
        """
        try:
            return self._rendered(messages)
        except _Refusal as err:
            raise InvalidRequest("chat", str(err)) from err
        except _TEMPLATE_FAULTS as err:
            raise InvalidRequest("chat", f"the model's chat template failed: {err}") from err

    def _rendered(self, messages: tuple[ChatMessage, ...]) -> str:
        chunks: list[str] = []
        num_chars = 0
        for chunk in self._template.generate(self._variables(messages)):
            chunks.append(chunk)
            num_chars += len(chunk)
            if num_chars > self._max_chars:
                raise _Refusal(
                    f"the model's chat template writes more than {self._max_chars} characters"
                )
        return "".join(chunks)

    def _variables(self, messages: tuple[ChatMessage, ...]) -> dict[str, Any]:
        return {
            "messages": [{"role": m.role.value, "content": _content(m)} for m in messages],
            "tools": None,
            "documents": None,
            "add_generation_prompt": True,
            "bos_token": self._bos_token,
            "eos_token": self._eos_token,
            _STEP: _step_counter(self._max_steps),
        }


def _content(message: ChatMessage) -> str | list[dict[str, str]]:
    if isinstance(message.content, str) or not message.images:
        return message.text
    return [
        {"type": "text", "text": part.text} if isinstance(part, TextPart) else {"type": "image"}
        for part in message.content
    ]


class _Refusal(TemplateError):
    """The template, or a bound of ours, refuses the chat."""


class _GenerationTag(Extension):
    """`{% generation %}`, which marks the model's own words for training, changes no text."""

    tags = {"generation"}  # noqa: RUF012 jinja2 reads this class attribute

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=lineno)


class _Sandbox(ImmutableSandboxedEnvironment):
    """The environment of chat templates; counts steps and bounds what operators make."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self, max_chars: int) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        self._max_chars = max_chars
        self.filters["tojson"] = _to_json
        self.globals["raise_exception"] = _raise_exception

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Put a counted step into each loop and macro, so that none can run away."""
        template = super()._parse(source, name, filename)
        for loop in list(template.find_all(nodes.For)):
            # In the test where there is one: what it filters out costs time as well.
            if loop.test is not None:
                loop.test = nodes.And(_step_call(loop.lineno), loop.test, lineno=loop.lineno)
            else:
                loop.body.insert(0, nodes.ExprStmt(_step_call(loop.lineno), lineno=loop.lineno))
        for macro in list(template.find_all(nodes.Macro)):
            macro.body.insert(0, nodes.ExprStmt(_step_call(macro.lineno), lineno=macro.lineno))
        template.set_environment(self)
        return template

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _size_made(operator, left, right) > self._max_chars:
            raise SecurityError(f"{operator!r} would make more than {self._max_chars} characters")
        return super().call_binop(context, operator, left, right)


def _size_made(operator: str, left: Any, right: Any) -> int:
    """Give the characters, items or digits that the operator would make, at most."""
    match operator, left, right:
        case "+", str() | list() | tuple(), str() | list() | tuple():
            return len(left) + len(right)
        case ("*", str() | list() | tuple(), int()):
            return len(left) * right
        case ("*", int(), str() | list() | tuple()):
            return left * len(right)
        case "*" | "**", int(), int():
            factor = right if operator == "**" else 1
            return left.bit_length() * factor + right.bit_length()
        case _:
            return 0


def _step_call(lineno: int) -> nodes.Call:
    return nodes.Call(nodes.Name(_STEP, "load"), [], [], None, None, lineno=lineno)


def _step_counter(max_steps: int) -> Callable[[], bool]:
    num_steps = 0

    def step() -> bool:
        nonlocal num_steps
        num_steps += 1
        if num_steps > max_steps:
            raise _Refusal(f"the model's chat template takes more than {max_steps} steps on it")
        return True

    return step


def _raise_exception(message: str) -> None:
    """Refuse the chat in the template's own words."""
    raise _Refusal(message)


def _to_json(
    value: Any,
    *,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as the reference does: no HTML escapes, unlike jinja2's own filter."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
