"""Deciding what to trim: policy, elision, the stages and the ledger. Pure: facts in, decisions out."""
