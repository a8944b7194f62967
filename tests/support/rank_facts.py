"""What ranks say of themselves, with one thing changed."""

from pathlib import Path

from lanehost.rank_group.agreement import Terms
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import RankGroupSettings
from ranks.wire.messages import Hello, Loaded

TOKEN = "the-token"
BUILD = "1.2.3"


def terms(**changes) -> Terms:
    return Terms(**({"world_size": 2, "build": BUILD, "token": TOKEN} | changes))


def hello(**changes) -> Hello:
    usual = {"rank": 0, "world_size": 2, "pid": 1, "build": BUILD, "token": TOKEN}
    return Hello(**(usual | changes))


def loaded(**changes) -> Loaded:
    usual = {
        "weights_digest": "w",
        "config_digest": "c",
        "geometry": "g",
        "vocab_size": 100,
        "context_length": 2048,
        "kv_bytes_per_block": 1000,
        "step_bytes": 0,
        "step_bytes_per_block": 0,
        "free_bytes": 10**9,
        "dtype": "float32",
        "device": "cpu",
        "collective": "gloo",
        "weights": "stored",
        "kv_layout": "float32",
        "num_layers": 4,
    }
    return Loaded(**(usual | changes))


def group_settings(**changes) -> RankGroupSettings:
    return RankGroupSettings(
        **({"model_path": Path("model"), "tp": 2, "keeps_spare": False} | changes)
    )


def facts(**changes) -> GroupFacts:
    usual = {
        "epoch": 1,
        "world_size": 2,
        "weights_digest": "w",
        "config_digest": "c",
        "vocab_size": 100,
        "context_length": 2048,
        "num_lanes": 4,
        "num_blocks": 16,
        "block_size": 4,
        "max_step_tokens": 16,
        "dtype": "float32",
        "device": "cpu",
        "collective": "gloo",
        "weights": "stored",
    }
    return GroupFacts(**(usual | changes))
