"""The pages of the documentation as programs: their code blocks, and a world that these run in."""

from pages.blocks import NOT_RUN_HERE, Block, blocks_of, title_says_not_run
from pages.running import run
from pages.world import World

__all__ = ["NOT_RUN_HERE", "Block", "World", "blocks_of", "run", "title_says_not_run"]
