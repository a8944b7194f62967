"""`python -m lanehost` is `lanehost`."""

from lanehost.cli import main

main()
