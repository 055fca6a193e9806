"""Research tasks, one a file, and the forecast: an add-on that Fieldfare finds by its entry points alone."""
