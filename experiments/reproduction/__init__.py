"""Train every method, compare the policies on held-out problems, and write the report (``make reproduce``)."""
