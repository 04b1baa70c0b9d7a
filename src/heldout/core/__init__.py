"""What every wing uses: errors, files, tables, the workspace, and the engine that runs work."""
