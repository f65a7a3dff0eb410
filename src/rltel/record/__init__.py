"""THE HOT PATH: what is called inside the training loop. Numbers into mergeable states, slices into buffers."""
