"""Keep gRPC's own log off the terminal of the command `lanehost`; import it before grpc.

gRPC reads the variable when it is loaded, and writes lines such as "Got goaway" beside
what lanehost says itself. Whoever sets GRPC_VERBOSITY gets what they ask for.
"""

import os

os.environ.setdefault("GRPC_VERBOSITY", "NONE")
