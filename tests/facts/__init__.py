"""Tests of what calls ask and answers say."""
