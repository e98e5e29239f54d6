"""Codecs: values to bytes and back."""
