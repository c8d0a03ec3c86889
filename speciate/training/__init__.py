"""Training of policies. Estimators and tasks need numpy alone; losses, base, trainer and report the extra ``train``."""
