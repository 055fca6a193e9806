"""The budget page: static files, no build step, nothing fetched from elsewhere."""
