"""What can be configured: settings from their sources, the policy's knobs and presets, and what a policy does."""
