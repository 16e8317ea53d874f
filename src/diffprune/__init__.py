"""Neural networks that get smaller while they train.

Names are imported when they are first used: torch takes seconds, and neither
`diffprune --help` nor a spelling mistake should have to wait for it. Which names there
are, and where they live, is written in `__init__.pyi`.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
