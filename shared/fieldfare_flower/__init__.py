"""All that knows the inside of Flower."""
