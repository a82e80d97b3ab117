"""The shared store: runs kept in Valkey or Redis, so that any replica can go on with them."""
