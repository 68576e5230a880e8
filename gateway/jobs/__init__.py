"""Jobs at work: who makes them, what runs them."""
