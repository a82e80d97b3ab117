"""Converts requests to the core's calls, and the core's answers to responses: one file for each subject.

Each request is checked for rules that protobuf's types cannot express. A value that would be wrong in any state of the
sidecar is rejected here with INVALID_ARGUMENT and its field's name; rules that depend on the prompt or the run are
checked by the core. Text written by a *model* is never rejected here: see `tools.py`.
"""
