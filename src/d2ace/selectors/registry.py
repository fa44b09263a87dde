"""The methods of the library: one line each, in the order of all lists and tables.

``d2ace`` and ``d2ace.selectors`` import everything public from here; everything else that lists
the methods reads ``SELECTORS``.
"""

from .base import Selector as _Selector
from .finding import SELECTORS as SELECTORS

# isort: off
from .random import Random as Random
from .active import Active as Active
from .recent import Recent as Recent
from .dihcl import DIHCL as DIHCL
from .balance import Balance as Balance
from .hard_imb import HardImb as HardImb
from .ml_unc import MLUnc as MLUnc
from .d2ace import D2ACE as D2ACE
from .online_batch import OnlineBatch as OnlineBatch
from .ada_boundary import AdaBoundary as AdaBoundary
from .info_batch import InfoBatch as InfoBatch
from .trim import Trim as Trim
# isort: on

SELECTORS.update(
    (method.name, method)
    for method in list(vars().values())
    if isinstance(method, type) and issubclass(method, _Selector) and method is not _Selector
)
