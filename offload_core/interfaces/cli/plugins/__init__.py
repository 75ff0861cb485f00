"""Plugins that are installed, and new ones."""
