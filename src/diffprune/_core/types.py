"""Shape annotations in jaxtyping's notation, without the dependency.

`Float[Tensor, " units"]` reads as it does in jaxtyping; to a type checker and to a
running program it is the plain `Tensor` with a note attached.
"""

from typing import Annotated as Bool, Annotated as Float, Annotated as Int

__all__ = ["Bool", "Float", "Int"]
