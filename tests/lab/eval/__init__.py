"""Does a model recall what it lost sight of? `make eval` asks one, over any OpenAI-compatible endpoint."""
