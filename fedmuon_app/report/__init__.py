"""From run folders to a table and a figure."""
