"""Generated message types of the package `prompt_sidecar.envoy.v1`; `make protos` writes them from `protos/`."""
