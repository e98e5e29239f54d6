"""All reads, as typed views, each from one transaction; entry points only show them."""
