"""The contained evaluator: the broker scores, candidates run elsewhere.

Read in this order: ``broker`` (the way in), ``cases``, ``scripted`` and ``data`` (one file per problem kind),
``session`` and ``channel`` (how the broker talks to a process it does not trust), ``verdict`` (how an end becomes a
failure), ``tiers`` (what contains the process), ``contained`` (what runs inside).
"""
