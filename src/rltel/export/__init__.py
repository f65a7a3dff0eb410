"""From commits to destinations: the pipeline, and one file per destination behind one protocol."""
