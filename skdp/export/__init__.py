"""Models that leave skdp: ONNX, MLflow, and the types that skops may read."""
