"""`lanehost cache`: look at a folder of the prompt cache on disk, check it, make it smaller.

`ls`, `stat` and `verify` only read, and may run beside a server. `prune` and `flush` own the folder
while they run; while a server does, it is asked to do the same.
"""

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from google.protobuf.message import Message

from lanehost.admin import client
from lanehost.cli_disk import Size
from lanehost.disk_cache.folder import own_folder
from lanehost.disk_cache.index import DiskEntry, DiskIndex
from lanehost.disk_cache.interface import FileReason
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.manifests import (
    ASIDE,
    Found,
    empty_aside,
    find_manifests,
    remove_manifest,
)
from lanehost.disk_cache.rank_file import check_rank_file, files_of, survey
from lanehost.errors import StartupFailed
from lanehost.logs import set_up_logs

EXIT_BROKEN = 1
_SHOWN_DIGITS = 12
_WORDS = {
    FileReason.MISSING: "missing",
    FileReason.TORN: "torn: shorter than it says, or not whole",
    FileReason.CHECKSUM: "its bytes have changed (checksum)",
    FileReason.FOREIGN: "foreign: no regular file of this format, or of another entry or rank",
    FileReason.OLDER: "of an older version of lanehost",
    FileReason.NEWER: "of a newer version of lanehost",
    FileReason.TOKENS: "it covers other tokens than its entry says",
    FileReason.DENIED: "this user may not read it",
    FileReason.IO: "the disk does not read it",
    FileReason.GONE: "gone meanwhile",
}
_FOLDER = click.argument(
    "folder", metavar="DIR", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
_SERVER = click.option("--server", "by_server", is_flag=True, help="Ask the server that uses DIR.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")


@click.group("cache", short_help="Look after a folder of `serve --disk-cache`.")
def cache() -> None:
    """Look after a folder of `serve --disk-cache`.

    `ls`, `stat` and `verify` only read, and may run beside a server; `prune` and `flush` change the
    folder: while a server uses it, have that do it, with --server.

    \b
    Examples:
      lanehost cache ls /var/cache/lanehost
      lanehost cache prune /var/cache/lanehost --budget 10GiB
    """  # noqa: D301 - click wants the character itself


@cache.command("ls")
@_FOLDER
@_JSON
def list_entries(folder: Path, *, as_json: bool) -> None:
    """List the entries of DIR, most used first. No token of a prompt is shown."""
    found = _find(folder)
    by_use = sorted(found.manifests, key=lambda one: (-one.hits, -one.used, one.header.key))
    if not as_json:
        click.echo(f"{'ENTRY':<12}  {'LAYOUT':<12} {'TOKENS':>7} {'MIB':>8} {'USES':>6}  WRITTEN")
    for manifest in by_use:
        click.echo(json.dumps(_as_object(manifest)) if as_json else _as_line(manifest))
    if found.broken:
        words = "manifest cannot" if len(found.broken) == 1 else "manifests cannot"
        click.echo(f"lanehost: {len(found.broken)} {words} be read; see `verify`", err=True)


@cache.command()
@_FOLDER
@_SERVER
@_JSON
def stat(folder: Path, *, by_server: bool, as_json: bool) -> None:
    """Sum up DIR: entries, tokens, bytes, uses, and what was moved aside.

    With --server: what its prompt cache holds, and what became of it since the start.
    """
    if by_server:
        _show(_of_server(lambda: client.get_stats(folder)), as_json=as_json)
        return
    found = _find(folder)
    aside = list((folder / ASIDE).glob("*")) if (folder / ASIDE).is_dir() else []
    told: dict[str, Any] = {
        "entries": len(found.manifests),
        "layouts": len({one.header.layout for one in found.manifests}),
        "tokens": sum(one.header.num_tokens for one in found.manifests),
        "bytes": sum(one.num_bytes for one in found.manifests),
        "uses": sum(one.hits for one in found.manifests),
        "broken_manifests": len(found.broken),
        "aside": len(aside),
    }
    _show(told, as_json=as_json)


@cache.command()
@_FOLDER
@_SERVER
def verify(folder: Path, *, by_server: bool) -> None:
    """Read every file of DIR that this host has, and say which are not what they should be.

    A file that is missing is one of them; those of ranks of other hosts are only counted. Nothing
    is changed: a server moves such files aside when it meets them. With --server its ranks
    read theirs, compare them with the loaded model, and move such aside now. Exit code 1 when
    there is one.
    """
    if by_server:
        said = _of_server(lambda: client.verify(folder))
        _show(said, as_json=False)
        sys.exit(EXIT_BROKEN if said["broken"] else 0)
    found = _find(folder)
    broken = list(found.broken)
    seen = survey(folder, found.manifests)
    broken += [(path, FileReason.MISSING) for path in seen.missing]
    num_files = 0
    for manifest in found.manifests:
        paths = list(files_of(folder, manifest.header))
        num_files += len(paths)
        broken += _check_files(paths, manifest)
    for path, reason in broken:
        click.echo(f"{path}: {_WORDS.get(reason, reason.value)}")
    click.echo(f"{len(found.manifests)} entries, {num_files} files, {len(broken)} broken")
    if seen.num_elsewhere:
        click.echo(
            f"{seen.num_elsewhere} files are not here: other hosts have those of their ranks"
        )
    if seen.orphans:
        click.echo(f"{len(seen.orphans)} files are of no entry; the next server removes them")
    sys.exit(EXIT_BROKEN if broken else 0)


@cache.command()
@_FOLDER
@_SERVER
@click.option("--budget", type=Size(), metavar="SIZE", required=True, help="Most that is left.")
def prune(folder: Path, budget: int, *, by_server: bool) -> None:
    """Remove the entries of least value until the files of DIR take no more than a budget.

    With --server, the server that uses DIR does; entries in use stay, and its own budget is what
    it was.
    """
    if by_server:
        _show(_of_server(lambda: client.prune(folder, budget)), as_json=False)
        return
    _remove(folder, budget, lambda index: index.beyond(budget), has_rest=True)


@cache.command()
@_FOLDER
@_SERVER
@click.option("--scope", help="Only the entries of this scope of `serve --keys`.")
def flush(folder: Path, scope: str | None, *, by_server: bool) -> None:
    """Remove all entries of DIR, what was moved aside and files of no entry; or those of one scope.

    With --scope what was moved aside stays: whose it is is not known.

    With --server, the server that uses DIR does, and forgets them in memory, too.
    """
    if by_server:
        _show(_of_server(lambda: client.flush(folder, scope)), as_json=False)
        return

    def chosen(index: DiskIndex) -> Iterable[DiskEntry]:
        return tuple(index) if scope is None else index.of_scope(scope)

    _remove(folder, 0, chosen, has_rest=scope is not None)


def _of_server(ask: Callable[[], Message]) -> dict[str, int]:
    """Return what the server says, by name."""
    try:
        said = ask()
    except client.NoAnswer as error:
        raise click.ClickException(f"no server answers for this folder: {error}") from error
    return {field.name: getattr(said, field.name) for field in said.DESCRIPTOR.fields}


def _show(told: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(told))
        return
    for name, value in told.items():
        click.echo(f"{name.replace('_', ' '):<17} {value}")


def _remove(
    folder: Path,
    budget: int,
    choose: Callable[[DiskIndex], Iterable[DiskEntry]],
    *,
    has_rest: bool,
) -> None:
    """Remove entries; without a rest, all that may have prompts in it, too."""
    set_up_logs(is_json=False)
    try:
        with own_folder(folder) as owned:
            index = DiskIndex("", block_size=1, budget_bytes=budget)
            for manifest in owned.found.manifests:
                index.add(manifest)
            gone = list(choose(index))
            for entry in gone:
                _remove_entry(folder, entry.manifest)
            if not has_rest:
                for path in survey(folder, ()).orphans:
                    path.unlink(missing_ok=True)
                empty_aside(folder)
    except (StartupFailed, OSError) as error:
        click.echo(f"lanehost: {error}", err=True)
        sys.exit(EXIT_BROKEN)
    num_bytes = sum(entry.manifest.num_bytes for entry in gone)
    click.echo(
        f"removed {len(gone)} entries, {num_bytes} bytes; {index.num_entries - len(gone)} left"
    )


def _remove_entry(folder: Path, manifest: Manifest) -> None:
    """Remove the manifest, then the files that this host has."""
    remove_manifest(folder, manifest.header.name)
    for path in files_of(folder, manifest.header):
        with suppress(FileNotFoundError):
            path.unlink()


def _check_files(paths: list[Path], manifest: Manifest) -> list[tuple[Path, FileReason]]:
    checked = ((path, check_rank_file(path, manifest.header)) for path in paths)
    return [(path, reason) for path, reason in checked if reason is not None]


def _find(folder: Path) -> Found:
    try:
        return find_manifests(folder)
    except OSError as error:
        raise click.ClickException(f"cannot read {folder}: {error.strerror}") from error


def _as_line(manifest: Manifest) -> str:
    header = manifest.header
    written = datetime.fromtimestamp(manifest.created_s, tz=UTC)
    return (
        f"{header.key[:_SHOWN_DIGITS]}  {header.layout[:_SHOWN_DIGITS]} {header.num_tokens:>7} "
        f"{manifest.num_bytes / (1 << 20):>8.1f} {manifest.hits:>6}  {written:%Y-%m-%d %H:%M:%SZ}"
    )


def _as_object(manifest: Manifest) -> dict[str, Any]:
    header = manifest.header
    return {
        "key": header.key,
        "layout": header.layout,
        "owner": manifest.owner,
        "tokens": header.num_tokens,
        "rank_bytes": list(manifest.rank_bytes),
        "uses": manifest.hits,
        "created_s": manifest.created_s,
    }
