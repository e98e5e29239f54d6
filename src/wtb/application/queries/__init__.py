"""One way to read: typed views, each read in one transaction. The facade and the command line only show them."""
