"""Reports: figures, the page, and the command that makes them."""
