"""For those who test with WTB or write a backend for it: the contract of every port, and fakes."""
