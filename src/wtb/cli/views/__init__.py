"""What commands print: tables, trees, live displays."""
