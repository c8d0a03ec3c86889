"""What ``program_mutator`` is made of: a map of a program's places, and edits of those places."""
