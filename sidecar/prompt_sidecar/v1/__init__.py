"""Generated message types and stubs of the package `prompt_sidecar.v1`; `make protos` writes them from `protos/`."""
