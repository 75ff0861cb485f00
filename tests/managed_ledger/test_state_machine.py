"""Any sequence of calls against a list: adds, rollovers, kills, trims, offloads, deletions of hot copies, reads."""

from effort import effort
from scenes.machines import TopicMachine

TopicMachine.TestCase.settings = effort(0.3, stateful_step_count=30)
TestTopic = TopicMachine.TestCase
