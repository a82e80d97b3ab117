"""The tools that the model is given, and the tasks that it keeps with them."""
