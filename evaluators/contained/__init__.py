"""What runs inside: a zygote, the supervisors it forks, and the programs that a contained process can be.

Everything here uses the standard library only and never imports ``speciate``: it is started by a bare interpreter that
finds this folder and nothing else of the project. Nothing here is trusted with an expected output.

Read in this order: ``zygote`` (one fork for every order), ``supervise`` (watches and sweeps), ``tier_a``, ``tier_b``
and ``unsafe`` (the walls), ``kernel``, ``landlock``, ``seccomp`` and ``syscalls`` (what the walls are made of),
``candidate`` and ``author`` (what runs between them), ``program``, ``seeding`` and ``wire`` (what those two share).
"""
