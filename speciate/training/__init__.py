"""Training of policies: advantages, entropy options, rollouts, tasks, trainer. Needs the ``train`` extra."""
