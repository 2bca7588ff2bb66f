// Programmatic dependent launch: a kernel may start before the one ahead of it in the stream ends.
#pragma once

namespace mla::sm90 {

// Waits until the kernels ahead in the stream have ended and what they wrote is visible.
__device__ inline void wait_for_prerequisite_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Allows the next kernel in the stream to start; it waits for the end of this one by itself.
__device__ inline void launch_dependent_grids() {
  asm volatile("griddepcontrol.launch_dependents;");
}

}  // namespace mla::sm90
