"""What stands under deploy/ is whole: configurations parse, name what exists, and the scripted agent works."""
