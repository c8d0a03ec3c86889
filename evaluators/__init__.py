"""The contained evaluator: the worker scores, candidates run elsewhere.

Read in this order: ``evaluator`` (entry point), ``cases``, ``scripted`` and ``data`` (one file per problem kind),
``session`` and ``channel`` (communication with an untrusted process), ``failures`` (mapping of process exits to
failures), ``tiers`` (sandbox isolation), ``contained`` (code inside the sandbox).
"""
