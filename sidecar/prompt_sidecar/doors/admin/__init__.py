"""Pages for people about single runs: a table of them, and one page each, without text of prompts."""
