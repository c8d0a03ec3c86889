"""Inference server for models of up to about 150 million parameters: vLLM's routes over numpy, no torch, no GPU."""

from speciate.inference.engine import Engine, GenerationRequest, SampledCompletion, SamplingParams

__all__ = ["Engine", "GenerationRequest", "SampledCompletion", "SamplingParams"]
