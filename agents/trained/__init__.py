"""An agent as a file: its weights with their checksum, and the same as ONNX; the agents that ship lie beside."""
