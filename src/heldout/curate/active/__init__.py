"""Which images to label next, across domains: strategies, the loop that tries them, the next batch."""
