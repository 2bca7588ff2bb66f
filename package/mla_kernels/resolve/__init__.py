"""From a config to the variant that serves it, and why; knows no kernel class."""
