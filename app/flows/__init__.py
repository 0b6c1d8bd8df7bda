"""Built-in drivers that are not recipe languages: conference, decomposition, session plan and single prompts."""
