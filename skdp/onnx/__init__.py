"""Models as ONNX graphs: see `to_onnx`."""

from skdp.export.onnx import to_onnx

__all__ = ["to_onnx"]
