"""Scripts that become part of an imported problem; they run in the sandbox with the standard library only."""
