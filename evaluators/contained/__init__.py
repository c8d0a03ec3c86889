"""Code inside the sandbox: a zygote, the supervisors it forks, and the programs of contained processes.

This code uses the standard library only and never imports ``speciate``: it runs in a bare interpreter that cannot find
any other folder of the project. It never receives an expected output.

Read in this order: ``zygote`` (one fork per supervisor), ``supervise`` (one fork per request), ``enter`` (what it
does), ``bounds`` and ``meter`` (limits), ``sweep`` (ends everything), ``tier_a``, ``tier_b`` and ``unsafe``
(isolation), ``kernel``, ``landlock``, ``seccomp`` and ``syscalls`` (its building blocks), ``candidate``, ``author`` and
``command`` (the contained programs), ``direct_channel`` and ``untrusted`` (calls of an author), ``program``
and ``wire`` (shared by those).
"""
