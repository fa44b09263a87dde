"""What training knows about the data: probably wrong labels, hard rows, labels not learnt."""

from .insights import Insights as Insights
from .records import Records as Records

__all__ = ["Insights", "Records"]
