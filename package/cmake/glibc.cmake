# Links against an older glibc than the host's, so that one wheel runs on older machines: its symbols come from the
# stubs that zig makes of any glibc, the code from the host's compiler. libstdc++ is linked in, because the host's is
# newer too.
add_library(mla_glibc INTERFACE)
set(MLA_LINKED)
set(MLA_GLIBC_STUBS "${CMAKE_BINARY_DIR}/glibc" CACHE PATH "Where the stubs are made, or were")
if(MLA_GLIBC)
  set(cache "${MLA_GLIBC_STUBS}/${MLA_GLIBC}")
  if(NOT EXISTS "${cache}/probe.so")
    file(WRITE "${cache}/probe.c" "int mla_probe;\n")
    execute_process(
      COMMAND
        "${CMAKE_COMMAND}" -E env "ZIG_GLOBAL_CACHE_DIR=${cache}" "ZIG_LOCAL_CACHE_DIR=${cache}" "${Python_EXECUTABLE}"
        -m ziglang cc -target "${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu.${MLA_GLIBC}" -shared "${cache}/probe.c" -o
        "${cache}/probe.so"
      RESULT_VARIABLE failed
      ERROR_VARIABLE reason)
    if(failed)
      message(FATAL_ERROR "no stubs of glibc ${MLA_GLIBC} (pip install ziglang):\n${reason}")
    endif()
  endif()
  file(GLOB stubs "${cache}/o/*/libc.so.6")
  file(GLOB nonshared "${cache}/o/*/libc_nonshared.a")
  get_filename_component(stubs "${stubs}" DIRECTORY)
  add_library(mla_newer_glibc OBJECT "${CMAKE_CURRENT_LIST_DIR}/newer_glibc.cpp")
  set_target_properties(mla_newer_glibc PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_options(mla_glibc INTERFACE -nodefaultlibs -Wl,--gc-sections -Wl,--as-needed -Wl,--exclude-libs,ALL)
  set(MLA_LINKED libstdc++)
  target_link_libraries(
    mla_glibc
    INTERFACE $<TARGET_OBJECTS:mla_newer_glibc> -l:libstdc++.a "${nonshared}" "${stubs}/libc.so.6" "${stubs}/libm.so.6"
              "${stubs}/libpthread.so.0" "${stubs}/libdl.so.2" "${stubs}/librt.so.1" "${stubs}/libld.so.2"
              -l:libgcc_s.so.1 -lgcc)
endif()
