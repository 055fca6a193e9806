"""The installed package, but for its `app`, which is the liar of this folder."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
