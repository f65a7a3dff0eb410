"""What is done with a run's directory: replay what a destination missed."""
