# nvcc, the static CUDA runtime and CUTLASS where pip put them; CUDACXX and MLA_CUTLASS_DIR name others.
function(mla_find_module module variable)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -c
            "from importlib.util import find_spec; print(find_spec('${module}').submodule_search_locations[0])"
    OUTPUT_VARIABLE folder
    OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE failed
    ERROR_QUIET)
  if(failed)
    message(FATAL_ERROR "${Python_EXECUTABLE} has no module ${module}; pip install the build requirements of the "
                        "payload's pyproject.toml")
  endif()
  set(${variable} "${folder}" PARENT_SCOPE)
endfunction()

if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
  mla_find_module(nvidia.cu13 root)
  set(CMAKE_CUDA_COMPILER "${root}/bin/nvcc")
endif()
if(NOT MLA_CUTLASS_DIR)
  mla_find_module(cutlass_library cutlass_library)
  set(MLA_CUTLASS_DIR "${cutlass_library}/source")
endif()

# Payloads are linked by the C++ compiler: nvcc's profile expects its libraries elsewhere than pip puts them.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
get_filename_component(root "${CMAKE_CUDA_COMPILER}" DIRECTORY)
find_library(MLA_CUDART_STATIC cudart_static REQUIRED
             PATHS "${root}/../lib" "${root}/../lib64" "${root}/../targets/x86_64-linux/lib" NO_DEFAULT_PATH)
find_package(Threads REQUIRED)

# What device code is compiled for: the arch that the generated sources name. The seed stands in for the process id that
# names of internal symbols would hold.
set(MLA_CUDA_ARCH "${MLA_PAYLOAD_ARCH}" CACHE STRING "Another arch to compile for")
set(MLA_CUDA_OPTIONS "-gencode=arch=compute_${MLA_CUDA_ARCH},code=sm_${MLA_CUDA_ARCH}" -O3 --expt-relaxed-constexpr
                     --compress-mode=size --frandom-seed=mla-kernels)

add_library(mla_cuda INTERFACE)
target_compile_features(mla_cuda INTERFACE cuda_std_17)
target_compile_options(mla_cuda INTERFACE "$<$<COMPILE_LANGUAGE:CUDA>:${MLA_CUDA_OPTIONS};--resource-usage>")
target_compile_definitions(mla_cuda INTERFACE NDEBUG)
target_include_directories(mla_cuda INTERFACE "${root}/../include")
list(PREPEND MLA_LINKED nvidia-cutlass nvidia-cuda-cccl nvidia-cuda-runtime)
target_link_libraries(mla_cuda INTERFACE "${MLA_CUDART_STATIC}" Threads::Threads rt ${CMAKE_DL_LIBS})

add_library(mla_cutlass INTERFACE)
target_include_directories(
  mla_cutlass SYSTEM
  INTERFACE "${MLA_CUTLASS_DIR}/include" "${MLA_CUTLASS_DIR}/tools/util/include"
            "${MLA_CUTLASS_DIR}/examples/common" "${MLA_CUTLASS_DIR}/examples/77_blackwell_fmha")
