"""What ``rltel doctor`` looks at: a file per kind of thing, each a function from the config to findings."""
