"""Built-in drivers that are not recipe languages: conference, decomposition and single prompts."""
