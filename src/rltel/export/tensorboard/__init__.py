"""TensorBoard: event files of our own writing."""
