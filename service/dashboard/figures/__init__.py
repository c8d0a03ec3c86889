"""Charts for the questions that people ask: one file for each question, pure functions of what was read."""
