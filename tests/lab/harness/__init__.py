"""What all programs of the lab share.

- `servers`, `processes`, `components`, `environments`: sidecars and other programs in processes of their own, where
  real components come from, and environments for peers
- `agents`, `facts`: agents that play a history as live ones would, and what the answers told them
- `prompts`, `counting`: recorded and synthetic runs as the prompts that agents send, and who counts tokens
- `beside`, `parallel`: threads beside what is measured, and work in several processes
- `figures`, `tables`, `pictures`: percentiles, ratios and shares; tables, command lines and facts; pictures of pages
"""
