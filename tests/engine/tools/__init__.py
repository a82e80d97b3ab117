"""Tests of the model's tools and tasks."""
