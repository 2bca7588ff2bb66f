"""The kernels against the reference: every op, on every arch whose hardware is here."""
