"""What leaves this installation: which addresses may be asked, how they are asked, and secrets that are kept sealed."""
