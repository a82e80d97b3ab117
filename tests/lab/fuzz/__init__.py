"""Structure-aware fuzzing of every format and every RPC: no input may give INTERNAL or UNKNOWN."""
