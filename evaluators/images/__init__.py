"""Run programs in container images by podman or docker (ADR 47).

A relay process on the worker serves the protocol of ``contained.command`` and runs every command of a candidate in a
container of its own. Nothing of Speciate is inside the container.
"""
