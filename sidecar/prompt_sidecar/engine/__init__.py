"""One prompt through one run: the steps that handle it, the model's tools, what outlives a call, and the use cases."""
