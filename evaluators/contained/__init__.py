"""What runs inside: a supervisor that forks the contained process, and the two programs that process can be.

Everything here uses the standard library only and never imports ``speciate``: it is started by a bare interpreter that
finds this folder and nothing else of the project. Nothing here is trusted with an expected output.
"""
