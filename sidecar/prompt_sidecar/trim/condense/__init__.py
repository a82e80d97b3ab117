"""Condensing: a tool result made smaller when it is first seen, by reductions that say what they leave out."""
