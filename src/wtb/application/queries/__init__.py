"""Everything that can be read, as typed views, each from one transaction; entry points only show them."""
