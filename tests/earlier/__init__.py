"""What an earlier version has made, and this one goes on with: revisions, and the runs in a shared store."""
