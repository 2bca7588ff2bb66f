"""Runs a task in a process of its own: ``python -m tests.kernels.worker <task>`` prints digests of problems as JSON.

Threads and instruction set are read from the environment once a process, and a fork is best made by a process that
holds nothing else.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from tests.support import memory
from tests.support.compare import as_bytes
from tests.support.problems import Decode, generator, random
from tests.support.rows import rows
from tests.support.sparse import SparseDecode, SparsePrefill


def digest(*tensors: Tensor) -> str:
    """Return a hash of the tensors' bytes."""
    total = hashlib.sha256()
    for tensor in tensors:
        total.update(as_bytes(tensor).numpy().tobytes())
    return total.hexdigest()


def problems() -> Iterator[Decode | SparseDecode | SparsePrefill]:
    """Yield a problem of each kind and type of the CPU, with several splits and every tail."""
    for row in rows("decode"):
        if row.arch == "cpu":
            yield Decode(row.name, lengths=(700, 141, 20, 1, 0), num_heads=19, q_len=2, page_size=61)
            yield Decode(row.name, lengths=(300, 64), num_heads=128, max_splits=3)
            yield Decode(row.name, lengths=(130, 33), num_heads=3, q_len=67, paged=False, q_deviation=20.0)
    for row in rows("sparse_decode"):
        if row.arch == "cpu":
            yield SparseDecode(row.name, num_heads=19, q_len=2, topk=333, counts=True, sink=True, extra_topk=40)
            yield SparseDecode(row.name, num_heads=128, topk=130, lead=65)
    for row in rows("sparse_prefill"):
        if row.arch == "cpu":
            yield SparsePrefill(row.name, q_len=9, num_heads=19, topk=140, counts=True)


def attention() -> dict[str, str]:
    """Check every problem against the reference."""
    torch.set_num_threads(1)
    digests = {}
    for problem in problems():
        problem.check()
        if not isinstance(problem, SparsePrefill):
            digests[repr(problem)] = digest(*problem.run())
    return digests


def caches() -> dict[str, str]:
    """Run store_kv, gather_kv and merge_states on enough rows for several threads."""
    import mla_kernels as mla

    digests = {}
    for row in rows("store_kv"):
        if row.arch != "cpu":
            continue
        form = row.form
        latent, rope = (random(generator(1 + i), 3000, n) for i, n in enumerate((form.latent, form.rope)))
        cast = [part.to(memory.DTYPES[row.in_dtype]) for part in (latent, rope)]
        cache = memory.pages_of(form, 50, 61).zero_()
        scale = torch.tensor([0.013]) if row.kv_dtype == "e4m3" else None
        mla.store_kv(
            cast[0],
            cast[1],
            cache,
            torch.randperm(3050, generator=generator(3))[:3000],
            scale=scale,
            kv_dtype=row.kv_dtype,
        )
        indices = torch.arange(3050, dtype=torch.int32)
        gathered = mla.gather_kv(cache, indices, kv_dtype=row.kv_dtype, out_dtype=row.in_dtype, kv_scale=1.0)
        digests[row.name] = digest(cache, gathered)
    o, lse = random(generator(4), 5, 300, 16, 512), random(generator(5), 5, 300, 16)
    digests["merge_states"] = digest(*mla.merge_states(o, lse))
    return digests


def _launch() -> tuple[Callable[[], str], str]:
    """Return a launch, and its digest, without torch operators, on which a forked child must not rely."""
    problem = Decode("cpu_decode_qfp32_kvfp32_ofp32_direct_split", lengths=(900, 300, 20), num_heads=32, max_splits=4)
    inputs = problem.tensors()
    out, lse = torch.empty(3, 1, 32, 512), torch.empty(3, 32, 1)
    views = out.numpy(), lse.numpy()

    def call() -> str:
        problem.launch(inputs, out=out, lse=lse)
        return hashlib.sha256(views[0].tobytes() + views[1].tobytes()).hexdigest()

    return call, call()


def fork() -> dict[str, str]:
    """Launch in the parent, in a child, in a grandchild, and in the parent again."""
    call, want = _launch()
    child = os.fork()
    if child == 0:
        grandchild = os.fork()
        same = call() == want
        if grandchild:
            same = os.waitpid(grandchild, 0)[1] == 0 and same
        os._exit(0 if same else 1)
    status = os.waitpid(child, 0)[1]
    return {"parent": want, "child": want if status == 0 else f"status {status}", "parent again": call()}


def pool() -> dict[str, str]:
    """Launch in the workers of a forked multiprocessing pool."""
    call, want = _launch()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    workers = [context.Process(target=lambda: results.put(call())) for _ in range(3)]
    for worker in workers:
        worker.start()
    got = {f"worker {i}": results.get(timeout=60) for i in range(len(workers))}
    for worker in workers:
        worker.join(60)
    return {"parent": want, **got, "parent again": call()}


TASKS = {task.__name__: task for task in (attention, caches, fork, pool)}

if __name__ == "__main__":
    json.dump(TASKS[sys.argv[1]](), sys.stdout)
