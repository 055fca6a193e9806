"""The budget page: static files without a build step, which fetch nothing from other servers."""
