"""The sidecar's tools for hosts of the Model Context Protocol: a process of its own that relays calls over gRPC.

It needs the extra `mcp` and nothing of the server. It keeps no state: each tool call is one call of the sidecar, by the
caller whom the host's credential names.
"""
