"""The live panel: what a run does right now, on a terminal."""
