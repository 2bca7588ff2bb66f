"""These modules find the variant that serves a config, and say why; they know no kernel class."""
