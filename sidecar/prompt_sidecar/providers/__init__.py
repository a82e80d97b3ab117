"""What is known of each provider API, one file each, shared by the client, the integrations and the doors.

Standard library only, and no I/O. `table.py` lists the APIs; other code uses the table and names no provider.
"""
