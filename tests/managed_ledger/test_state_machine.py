"""Any sequence of calls against a list: adds, rollovers, kills, trims, offloads, deletions of hot copies, reads."""

from __future__ import annotations

from hypothesis import settings
from scenes.machines import TopicMachine

TopicMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestTopic = TopicMachine.TestCase
