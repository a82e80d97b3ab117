"""Tests of the server, on real sockets."""
