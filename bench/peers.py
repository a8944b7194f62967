"""lanehost beside other programs that run the same model, in turn: `--help` says what it needs.

python bench/peers.py --llama-bin llama.cpp/build/bin --peers-python peers/bin/python
"""

import sys
from pathlib import Path

# So that it runs from any folder, installed or not; the folder `peers` beside it has the parts.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from bench.peers.command import main  # noqa: E402

if __name__ == "__main__":
    main()
