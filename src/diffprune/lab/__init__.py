"""The workbench: one training loop, run folders, comparison, sweeps and reports.

Names are imported when they are first used, because `diffprune --help` should not have
to wait for torch. Which names there are is written in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
