"""Builds wheels in the stage, with a compile cache or in shards for a build farm, and reports what that cost."""
