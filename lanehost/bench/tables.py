"""Figures in rows and columns, as plain text; pure."""

from collections.abc import Sequence

_WIDTH = 96


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Put rows into columns: the first to the left, all others to the right.

    >>> align([["", "p50"], ["TTFT", "12.0"]])
    ['       p50', 'TTFT  12.0']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def define(definitions: dict[str, str]) -> list[str]:
    """Write a word and its meaning a paragraph, broken to the width of a terminal."""
    lines = ["", "What the words mean:"]
    for word, meaning in definitions.items():
        line = f"  {word}:"
        for part in meaning.split():
            if len(line) + 1 + len(part) > _WIDTH:
                lines.append(line)
                line = "   "
            line += f" {part}"
        lines.append(line)
    return lines


def milliseconds(seconds: float | None) -> str:
    """Write a time in milliseconds; a dash when there is none."""
    return "-" if seconds is None else f"{seconds * 1e3:.1f}"
