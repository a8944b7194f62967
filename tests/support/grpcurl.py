"""Do what a `grpcurl` command line says, with nothing of it known beforehand.

As that program does, it compiles the .proto file that the command names, reads the JSON
into the request of the method, calls it on the wire and returns the answers as JSON. The
stubs of the project take no part, so a wrong path, field or method is an error here too.
An option that is not in `_VALUES` or `_FLAGS` is an error: add it when a page needs it.
"""

import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

_VALUES = ("-import-path", "-proto", "-d")
_FLAGS = ("-plaintext",)
_TIMEOUT_S = 60.0


def run_grpcurl(command: str, *, cwd: Path) -> str:
    """Run one command; return what it would print.

    Raises:
        ValueError: the command is none, or has an option that is not known here.
        grpc.RpcError: the call failed.
    """
    options, (address, path) = _read(command)
    service, name = path.split("/")
    pool = _compile(cwd / options["-import-path"], options["-proto"])
    method = pool.FindServiceByName(service).FindMethodByName(name)
    request = message_factory.GetMessageClass(method.input_type)()
    json_format.Parse(options.get("-d", "{}"), request, descriptor_pool=pool)
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_stream if method.server_streaming else channel.unary_unary
        answer = call(
            f"/{path}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(method.output_type).FromString,
        )(request, timeout=_TIMEOUT_S)
        answers = list(answer) if method.server_streaming else [answer]
    return "\n".join(json_format.MessageToJson(one, descriptor_pool=pool) for one in answers)


def _read(command: str) -> tuple[dict[str, str], list[str]]:
    # shlex takes the end of a continued line for a word.
    program, *words = shlex.split(command.replace("\\\n", " "))
    if program != "grpcurl":
        raise ValueError(f"{program!r} is not grpcurl")
    options: dict[str, str] = {}
    positional: list[str] = []
    rest = iter(words)
    for word in rest:
        if word in _VALUES:
            options[word] = next(rest)
        elif not word.startswith("-"):
            positional.append(word)
        elif word not in _FLAGS:
            raise ValueError(f"grpcurl's option {word} is not known here")
    return options, positional


def _compile(import_path: Path, proto: str) -> descriptor_pool.DescriptorPool:
    with tempfile.TemporaryDirectory() as folder:
        compiled = Path(folder) / "set"
        where = (f"-I{import_path}", f"--descriptor_set_out={compiled}")
        subprocess.run(
            [sys.executable, "-m", "grpc_tools.protoc", "--include_imports", *where, proto],
            check=True,
        )
        files = descriptor_pb2.FileDescriptorSet.FromString(compiled.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return pool
