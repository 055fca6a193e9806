"""The privacy core of Fieldfare: noise mechanisms, participation, accounting, clipping, plans.

Pure mathematics and types: no Flower, no web, no database, no files.
"""

__version__ = "0.1.0"
