"""Requests to calls and answers to responses, one file for each subject."""
