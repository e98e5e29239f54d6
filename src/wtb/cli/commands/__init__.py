"""The commands, one file a group: parse, call a service, print."""
