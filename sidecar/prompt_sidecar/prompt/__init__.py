"""The prompt as data: items and messages, and one reader and writer for each format."""
