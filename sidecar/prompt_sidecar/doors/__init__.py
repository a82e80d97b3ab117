"""What a door is, and the doors of one process together: opened, drained and closed in one order."""
