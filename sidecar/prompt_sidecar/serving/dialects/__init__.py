"""The providers' APIs: which members of a request matter, and what of an answer is the agent's. One file each."""
