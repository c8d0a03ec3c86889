"""What our processes say of themselves: lines of a log with the ids of what they work on, and traces when asked for."""
