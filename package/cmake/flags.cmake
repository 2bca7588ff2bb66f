# What every target is compiled with.
add_library(mla_flags INTERFACE)
target_compile_features(mla_flags INTERFACE cxx_std_17)
target_compile_options(mla_flags INTERFACE -Wall -Wextra $<$<BOOL:${MLA_WERROR}>:-Werror>)
target_include_directories(mla_flags INTERFACE "${MLA_CSRC_DIR}" "${MLA_GENERATED_DIR}/include")
target_link_options(mla_flags INTERFACE -Wl,--build-id=none)

if(MLA_SANITIZE)
  target_compile_options(mla_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined
                                             -fno-omit-frame-pointer -g)
  target_link_options(mla_flags INTERFACE -fsanitize=address,undefined)
endif()
