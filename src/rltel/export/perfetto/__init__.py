"""The timeline on disk: from lanes of records to native Perfetto files."""
