"""Model-free tools: each reads text files of the workspace and answers with plain JSON, the same for the same files."""
