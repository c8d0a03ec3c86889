"""Training of policies. Estimators and tasks need numpy alone; losses, base, trainer and report the extra ``train``."""

import os

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")  # trl reports every training to its makers otherwise
