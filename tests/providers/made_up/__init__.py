"""The files of a provider that nobody offers, as they would stand in providers/, prompt/ and answers/."""
