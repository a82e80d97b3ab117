"""Tests of the Envoy door."""
