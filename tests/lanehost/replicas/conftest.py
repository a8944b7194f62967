"""What Ray must find in its environment, before any test of this folder imports it."""

import importlib.util
import os

from tests.support.ray_served import ray_environment

if importlib.util.find_spec("ray"):
    os.environ.update(ray_environment())
