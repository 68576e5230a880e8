"""A conversation's sizes and gaps, replayed under different settings: what it costs, who waits."""
