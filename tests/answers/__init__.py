"""Tests of providers' answers as streams."""
