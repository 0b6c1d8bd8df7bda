"""The story toolkit (execution-modes, Tools): scenes, outlines, canon and the checks over them."""
