"""The panel and the console of a run that trains a language model: which rows there are, and what stands in them."""
