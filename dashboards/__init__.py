"""Drawing only: results in, text out. Imports results, never readers."""
