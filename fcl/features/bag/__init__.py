"""k-mers anywhere in the window: ids (``family``), prices (``pricing``), columns, margins."""

from fcl.features.bag.family import Bag, BagFamily

__all__ = ["Bag", "BagFamily"]
