"""Tasks that policies are trained and compared on, one file each: how problems are made, answered and scored."""
