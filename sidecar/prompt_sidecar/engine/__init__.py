"""One prompt through one run: the steps of its way, the model's tools, what outlives a call, and the use cases."""
