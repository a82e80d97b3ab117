"""Condensing: a tool result made smaller when it is first seen, by reductions that note what they leave out."""
