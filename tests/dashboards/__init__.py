"""Dashboards and rules: what they name exists, what they ask parses, what they promise fires."""
