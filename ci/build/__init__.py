"""Building: the stage, the compile cache, shards for a build farm, and what a build cost."""
