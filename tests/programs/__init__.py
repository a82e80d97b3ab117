"""Programs that measure, show and attack; the tests of each stand beside it."""
