"""Programs that measure the product and its tests."""
