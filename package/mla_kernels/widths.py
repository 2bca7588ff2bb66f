"""How wide the rows of MLA are, in elements."""

LATENT = 512
"""Of the latent, and so of an output row."""

ROPE = 64
"""Of the rope part."""

HEAD_DIM = LATENT + ROPE
"""Of a packed row."""
