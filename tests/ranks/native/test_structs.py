"""Structs are those of the headers, field by field: a field that moved would be read as another."""

import ctypes
import re

import numpy as np
import pytest

from ranks.native import structs
from ranks.native.build import SOURCES
from ranks.native.structs import DrawStruct, LayerStruct, MatrixStruct, ShapeStruct, address

HEADERS = {
    "Matrix": ("kernels.h", MatrixStruct),
    "Shape": ("model.h", ShapeStruct),
    "Layer": ("model.h", LayerStruct),
    "Pool": ("model.h", structs._PoolStruct),
    "Step": ("model.h", structs._StepStruct),
    "Frame": ("model.h", structs._FrameStruct),
    "Draw": ("sampler.h", DrawStruct),
}
PLAIN = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "Matrix": MatrixStruct,
    "Pool": structs._PoolStruct,
}


def fields_of(header, name):
    """(name, type) of each field that a header declares."""
    text = re.sub(r"//.*", "", (SOURCES / header).read_text())
    body = re.search(rf"struct {name} \{{(.*?)\n\}};", text, re.DOTALL)[1]
    for declared in filter(None, map(str.strip, body.split(";"))):
        if "(" in declared or "{" in declared or declared == "}":
            continue
        kind, names = re.fullmatch(r"(?:const )?(\w+)(.*)", declared, re.DOTALL).groups()
        for one in names.split(","):
            pointer, field, length = re.fullmatch(
                r"\s*(\*?)\s*(\w+)\s*(?:\[(\w+)\])?", one
            ).groups()
            size = {None: 1, "kMaxShards": structs.MAX_SHARDS}.get(length) or int(length)
            of = ctypes.c_void_p if pointer else PLAIN[kind]
            yield field, of if length is None else of * size


@pytest.mark.parametrize("name", HEADERS)
def test_a_struct_has_the_fields_of_its_header(name):
    header, struct = HEADERS[name]
    declared = list(fields_of(header, name))
    assert [field for field, _ in declared] == [field for field, _ in struct._fields_]
    for (field, wanted), (_, found) in zip(declared, struct._fields_, strict=True):
        same = wanted is found or (
            issubclass(wanted, ctypes.Array)
            and (wanted._type_, wanted._length_) == (found._type_, found._length_)
        )
        assert same, f"{name}.{field} is {found}, the header says {wanted}"


def test_an_address_is_of_what_lies_in_one_piece():
    values = np.arange(6, dtype=np.float32)
    assert address(values).value == values.ctypes.data
    assert address(None).value is None
    with pytest.raises(AssertionError):
        address(values[::2])
