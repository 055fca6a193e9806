# What `import fieldfare as ff` offers, for editors and type checkers; `__init__.py` imports it when it is used.
from fieldfare import errors as errors
from fieldfare import mechanisms as mechanisms
from fieldfare.plan import Plan as Plan
from fieldfare.task import Task as Task
from fieldfare_client.mods import budget as budget
from fieldfare_client.mods import masked as masked
from fieldfare_client.private import Private as _Private
from fieldfare_client.simulation import LocalGrid as LocalGrid
from fieldfare_client.users import UserTable as UserTable
from fieldfare_server.accountant import LedgerAccountant as LedgerAccountant
from fieldfare_server.ledger import Ledger as Ledger
from fieldfare_server.notebook.asking import ask as ask
from fieldfare_server.notebook.comparison import compare as compare
from fieldfare_server.notebook.simulation import simulate as simulate
from fieldfare_server.notebook.tuning import tune as tune
from fieldfare_server.run.pricing import price as price
from fieldfare_server.run.private.strategy import PrivateStrategy as PrivateStrategy

__version__: str
private: _Private
"""A module that is also a mod."""
