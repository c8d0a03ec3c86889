"""Train a pretrained model for sets on a task with conflicts (docs/evidence/real-model.md)."""
