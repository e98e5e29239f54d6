"""The checkpoint store: deltas, keyframes and content-addressed blobs, over the rows of any backend."""
