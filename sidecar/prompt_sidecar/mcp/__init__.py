"""The sidecar's tools for hosts of the Model Context Protocol: a process of its own that relays calls over gRPC.

It needs the extra `mcp` and nothing of the server. It keeps no memory: each call of a tool is one call of the sidecar,
as the caller that the host's credential names.
"""
