"""k-mers anywhere in the window: ids (``family``), prices (``pricing``), columns and margins."""

from fcl.features.bag.family import Bag, BagFamily

__all__ = ["Bag", "BagFamily"]
