"""What it takes to start Speciate and its peers."""
