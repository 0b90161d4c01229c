"""Loads the plugin for `pytest` in this repository; elsewhere its entry point does."""

pytest_plugins = ["harness.plugin"]
