"""Pages of the reference that are generated from the code: `make reference` writes them, a test compares them."""

from reference.pages import PAGES

__all__ = ["PAGES"]
