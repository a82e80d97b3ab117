"""Tests of the doors, by real clients on real sockets."""
