"""The installed package, but for its `app`, which is the liar beside this file."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
