"""Agents at work with a real server, and pictures of its pages about their runs."""
