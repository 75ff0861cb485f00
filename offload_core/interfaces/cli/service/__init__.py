"""A service and its topics: settings, policies, offloads."""
