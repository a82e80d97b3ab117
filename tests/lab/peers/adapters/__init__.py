"""One small script a peer, run in the peer's environment: it may import the peer, this folder and nothing else."""
