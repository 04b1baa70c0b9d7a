"""What every wing stands on: errors, files, tables, the workspace, and the engine that runs work."""
