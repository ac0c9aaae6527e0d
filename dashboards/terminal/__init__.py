"""Terminal drawing with rich; fits 80 columns and reads without colour."""
