// What the ops of dense and of sparse decode do alike around the kernel.
#pragma once

#include "common/checks.h"
#include "cuda/launch.h"
#include "sm100/cutlass_mla/workspace.h"

namespace mla::sm100 {

template <class Problem>
Status can_run_attention(const Problem& p, const Traits& traits) {
  AttentionProblem attention;
  return describe_all(p, traits, &attention);
}

// Launches an attention. `prepare` prepares the op's kernels on the device; `run` launches them on
// the rows that are prepared in the workspace by then. `selects` is the tensor that says which
// tokens a row attends to.
template <class Problem, class Run>
Status launch_attention(const Problem& p, const Traits& traits, const TensorData& selects,
                        void* workspace, Stream stream, Status (*prepare)(int32_t),
                        const Run& run) {
  AttentionProblem attention;
  MLA_TRY(describe_all(p, traits, &attention));
  if (attention.shape.rows == 0) return {};
  const int64_t slots = saturating_product({p.num_pages, p.page_size});
  MLA_TRY(check_present({{"q", p.q_latent, 1},
                         {"q", p.q_rope, traits.format().rope > 0},
                         {"kv_cache", p.kv_latent, slots},
                         {"kv_cache", p.kv_rope, traits.format().has_rope_view() ? slots : 0},
                         selects,
                         {"out", p.out, 1}}));
  WorkspaceLayout layout;
  MLA_TRY(lay_out(attention, &layout));
  const cuda::DeviceGuard guard(p.device);
  MLA_TRY(guard.status());
  MLA_TRY(prepare(p.device));
  MLA_TRY(launch_rows(attention, layout, workspace, cuda::cuda_stream(stream)));
  return run(attention, layout);
}

}  // namespace mla::sm100
