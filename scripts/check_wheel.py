"""Check that a wheel holds the tracked files of both packages, its metadata, and no more.

The native library is in it where the wheel says that it is for one platform.

The wheel is named on the command line; the tracked files come on standard input, a line each.
"""

import sys
import zipfile

LIBRARY = "ranks/native/_kernels.so"
METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")


def main() -> None:
    """Compare what the wheel holds with what it should hold; name every difference."""
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        packed = set(wheel.namelist())
    info = next(name for name in packed if name.endswith(".dist-info/METADATA"))
    prefix = info.removesuffix("METADATA")
    wanted = set(sys.stdin.read().splitlines()) | {prefix + name for name in METADATA}
    if not sys.argv[1].endswith("-any.whl"):
        wanted.add(LIBRARY)
    if packed != wanted:
        missing = ", ".join(sorted(wanted - packed)) or "nothing"
        surplus = ", ".join(sorted(packed - wanted)) or "nothing"
        sys.exit(f"the wheel lacks: {missing}; has but should not: {surplus}")


if __name__ == "__main__":
    main()
