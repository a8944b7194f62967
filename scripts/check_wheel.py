"""Check that a wheel holds the tracked files of both packages, its entry point, and no more."""

import subprocess
import sys
import zipfile

PACKAGES = ("lanehost", "ranks")
METADATA = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")


def main() -> None:
    """Compare the wheel named on the command line with what git tracks."""
    with zipfile.ZipFile(sys.argv[1]) as wheel:
        packed = set(wheel.namelist())
    info = next(name for name in packed if name.endswith(".dist-info/METADATA"))
    prefix = info.removesuffix("METADATA")
    listed = subprocess.run(
        ["git", "ls-files", "--", *PACKAGES],  # noqa: S607 git is found on the path, as in a shell
        check=True,
        capture_output=True,
        text=True,
    )
    wanted = set(listed.stdout.splitlines()) | {prefix + name for name in METADATA}
    if packed != wanted:
        missing = ", ".join(sorted(wanted - packed)) or "nothing"
        surplus = ", ".join(sorted(packed - wanted)) or "nothing"
        sys.exit(f"the wheel lacks: {missing}; has but should not: {surplus}")


if __name__ == "__main__":
    main()
