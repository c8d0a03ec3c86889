"""Records of stored objects, as the REST API returns them, the SDK parses them and the CLI prints them."""
