"""Fakes and conformance suites: for our own tests, and for those of plug-ins."""
