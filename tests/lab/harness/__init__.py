"""What all programs of the lab share: servers, agents, recorded runs, tables, pictures, options."""
