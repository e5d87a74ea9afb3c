"""A batch of commands → a verdict for each, and the words of the answers: for consumer, API and test kit alike."""
