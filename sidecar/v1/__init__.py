"""Generated message types and stubs of the package `sidecar.v1`; `make protos` writes them from `protos/`."""
