"""The language of edge conditions."""
