"""Workspace files: folders as trees, contents in object stores, commits in rows."""
