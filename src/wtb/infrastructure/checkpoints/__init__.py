"""The checkpoint store: deltas, keyframes and content-addressed blobs, over any rows that can keep them."""
