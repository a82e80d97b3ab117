"""The guard: rules that find secrets, personal data and look-alikes in new text; masks; ceilings."""
