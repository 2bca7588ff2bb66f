"""What a step's layers share."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass
class FlashMLASparseMetadata:
    """A step: its requests one after the other, and where their tokens lie.

    Attributes
    ----------
    num_reqs, max_query_len, max_seq_len : int
        Requests; the most new tokens, and the most tokens in all, of one.
    num_actual_tokens : int
        New tokens of all requests, padding excluded.
    query_start_loc : int32 [num_reqs + 1]
        Where the new tokens of each request begin.
    slot_mapping : int64 [num_actual_tokens]
        Where each new token goes in the cache, ``page * block_size + offset``; a negative slot is skipped.
    block_table : int32 [num_reqs, table_width]
        The pages of each request in order.
    req_id_per_token : int32 [num_actual_tokens]
        The request of each new token.
    block_size : int
        Tokens of a page.
    topk_tokens : int
        Positions that the indexer selects for a token.
    fp8_extra_metadata : FlashMLASparseMetadata.FP8KernelMetadata or None
        For an ``fp8_ds_mla`` cache.
    """

    @dataclass
    class FP8KernelMetadata:
        """What ``compat.flash_mla.flash_mla_with_kvcache`` takes in addition to queries, cache and indices.

        ``FlashMLASparseImpl`` calls ``sparse_decode``, which needs none of it.

        Attributes
        ----------
        scheduler_metadata, num_splits : int32
            What ``get_mla_metadata`` gave, in buffers that outlive the step.
        dummy_block_table : int32 [1, 1]
            Not read.
        cache_lens : int32 [1]
            Not read.
        """

        scheduler_metadata: torch.Tensor | None
        num_splits: torch.Tensor
        dummy_block_table: torch.Tensor
        cache_lens: torch.Tensor

    num_reqs: int
    max_query_len: int
    max_seq_len: int
    num_actual_tokens: int
    query_start_loc: torch.Tensor
    slot_mapping: torch.Tensor
    block_table: torch.Tensor
    req_id_per_token: torch.Tensor
    block_size: int = 64
    topk_tokens: int = 2048
    fp8_extra_metadata: FP8KernelMetadata | None = None


@dataclass
class FlashMLASparseDecodeAndContextMetadata:
    """Schedules of decode, and of a prefill whose keys are partly in the cache already, its context.

    Attributes
    ----------
    scheduler_metadata, num_splits, cache_lens, dummy_block_table : Tensor or None
        As in ``FlashMLASparseMetadata.FP8KernelMetadata``.
    prefill_context_lengths : int32 [num_tokens] or None
        Tokens in the cache before the new ones, of each token's request.
    prefill_new_k_start_locs : int32 or None
        Where each request's new keys begin.
    """

    scheduler_metadata: torch.Tensor | None = None
    num_splits: torch.Tensor | None = None
    cache_lens: torch.Tensor | None = None
    prefill_context_lengths: torch.Tensor | None = None
    prefill_new_k_start_locs: torch.Tensor | None = None
    dummy_block_table: torch.Tensor | None = None

    def filter_prefill_indices(self, indices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Part positions into those of the context and those of new tokens, each with -1 in place of the other's.

        Parameters
        ----------
        indices : int32 [num_tokens, topk]
            Positions within the request; a negative one is absent.

        Returns
        -------
        context_indices : int32 [num_tokens, topk]
            Positions below the context's length.
        new_token_indices : int32 [num_tokens, topk]
            The others, counted from the first new token.

        Raises
        ------
        ValueError
            ``prefill_context_lengths`` is None.
        """
        if self.prefill_context_lengths is None:
            raise ValueError("prefill_context_lengths is None: this step has no prefill to part indices of")
        lengths = self.prefill_context_lengths.unsqueeze(-1)
        in_context = indices < lengths
        return indices.where(in_context, -1), (indices - lengths).where(~in_context, -1)


@dataclass
class MLASparsePrefillMetadata:
    """A prefill, and whether part of its keys is in the cache already.

    Attributes
    ----------
    block_table : int32 [num_reqs, table_width]
    has_context : bool
    context_lens : int32 [num_reqs] or None
    """

    block_table: torch.Tensor
    has_context: bool = False
    context_lens: torch.Tensor | None = None
