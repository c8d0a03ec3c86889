"""Problems as people write them: reading a directory or a JSON definition, and the problems that come along."""
