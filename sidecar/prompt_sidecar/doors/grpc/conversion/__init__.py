"""Requests to the core's calls, and the core's answers to responses: one file for each subject, both directions in it.

Each request is checked for what protobuf's types cannot express. A value that would be wrong in any state of the
sidecar is rejected here with INVALID_ARGUMENT and its field's name; what depends on the prompt or the run, the core
decides. What a *model* wrote is never rejected here: see `tools.py`.
"""
