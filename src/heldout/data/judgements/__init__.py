"""The one table of human answers: store, import, export, consensus."""
