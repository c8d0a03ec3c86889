"""Train SmolLM2-135M by GRPO, VPO and Vector Max-at-K, and compare it with its base through the whole service."""
