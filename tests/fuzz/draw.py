"""From a seed to a case."""

from __future__ import annotations

from collections.abc import Callable

import mla_kernels as mla

from tests.fuzz.changes.aliases import aliased
from tests.fuzz.changes.mutations import mutated
from tests.fuzz.changes.plans import forged, scheduled
from tests.fuzz.changes.sizes import asked
from tests.fuzz.changes.together import crowded
from tests.fuzz.changes.wild import wild
from tests.fuzz.elements import Noise
from tests.fuzz.memory import Space
from tests.fuzz.problems import attention, caches
from tests.fuzz.problems.case import Case, Maker, Variant, is_bare

PROBLEMS: dict[str, Callable[..., Case]] = {
    "decode": attention.decode,
    "sparse_decode": attention.sparse_decode,
    "sparse_prefill": attention.sparse_prefill,
    "merge_states": caches.merge_states,
    "store_kv": caches.store_kv,
    "gather_kv": caches.gather_kv,
    "to_global_indices": caches.to_global_indices,
}
"""The problems of each op; a test compares the ops with those of the package."""


def listed(arch: str) -> dict[str, list[Variant]]:
    """The variants of an arch by op, as the public listing has them."""
    found: dict[str, list[Variant]] = {op: [] for op in PROBLEMS}
    for row in mla.variants(arch=arch):
        found[row.op].append(Variant(row.name, row.op, row.arch, dict(row.baked), dict(row.accepts)))
    return found


def legal(make: Maker, variants: dict[str, list[Variant]], long: bool = False) -> Case:
    """A legal call of a random op."""
    ops = [op for op, rows in variants.items() if rows]
    op = make.random.choice(ops)
    case = PROBLEMS[op](make, make.random.choice(variants[op]), long)
    way = make.random.random()
    if make.device == "cpu" and way > 0.97:
        case.arguments["stream"] = make.random.choice((0, 7, 2**62))  # a CPU has none
    if way < 0.4 and not is_bare(case):
        case.how = "planned" if op == "decode" and way < 0.2 else "kernel"
        case.notes["workspace"] = make.chance(0.6)
    return case


KINDS: tuple[tuple[str, float], ...] = (
    ("right", 0.41),
    ("mutated", 0.24),
    ("wild", 0.08),
    ("alias", 0.08),
    ("plan", 0.05),
    ("compat", 0.03),
    ("asked", 0.06),
    ("together", 0.025),
    ("long", 0.025),
)
"""How a case comes about, and how often."""


def drawn(seed: int, noise: Noise, variants: dict[str, list[Variant]], space: Space) -> Case:
    """The case of a seed; the space is told the framework of its tensors."""
    make = Maker(seed, noise, space.device)
    kind = make.random.choices([name for name, _ in KINDS], [share for _, share in KINDS])[0]
    space.framework = "numpy" if make.device == "cpu" and make.chance(0.25) else "torch"
    if kind in ("plan", "compat"):
        if make.device != "cpu" and kind == "plan":
            kind = "right"
        else:
            case = (forged if kind == "plan" else scheduled)(make, variants)
            if kind == "compat":
                space.framework = "torch"
            return case
    case = legal(make, variants, kind == "long")
    case.kind = kind
    changes: dict[str, Callable[[], Case]] = {
        "mutated": lambda: mutated(make, case, space),
        "wild": lambda: wild(make, case),
        "alias": lambda: aliased(make, case, space),
        "asked": lambda: asked(make, case),
        "together": lambda: crowded(make, case),
    }
    case = changes.get(kind, lambda: case)()
    space.framework = case.notes.get("framework", space.framework)
    out = {"gather_kv": "out_dtype", "merge_states": "out_dtype"}.get(case.op, "")
    if (case.variant.traits.get("out_dtype") == "bf16" and not case.arguments.get("out")) or out in case.arguments:
        space.framework = "torch"  # NumPy cannot allocate every output
    return case
