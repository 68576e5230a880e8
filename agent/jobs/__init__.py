"""Jobs: what happens at a set time, by itself."""
