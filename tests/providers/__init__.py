"""Tests of what is known of provider APIs."""
