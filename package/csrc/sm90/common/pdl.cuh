// Programmatic dependent launch: a kernel may start before the one ahead of it in the stream ends.
#pragma once

namespace mla::sm90 {

// Until the kernels ahead have ended and what they wrote can be seen.
__device__ inline void wait_for_prerequisites() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// The kernel behind may start; it waits for the end of this one.
__device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;"); }

}  // namespace mla::sm90
