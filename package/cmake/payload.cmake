# mla_payload(NAME SOURCE...): libmla_NAME.so from the given sources, the generated units and the common C ABI,
# installed with its registry into the folder of the Python package that stands for it.
function(mla_payload name)
  include("${MLA_GENERATED_DIR}/${name}/sources.cmake")
  list(TRANSFORM MLA_PAYLOAD_UNITS PREPEND "${MLA_GENERATED_DIR}/" OUTPUT_VARIABLE generated)
  add_library(mla_${name} MODULE ${ARGN} ${generated} "${MLA_GENERATED_DIR}/abi_layout.cpp"
                                 "${MLA_CSRC_DIR}/common/payload.cpp" "${MLA_CSRC_DIR}/common/status.cpp")
  set_target_properties(mla_${name} PROPERTIES PREFIX "lib" CXX_VISIBILITY_PRESET hidden
                                               VISIBILITY_INLINES_HIDDEN ON)
  target_compile_definitions(mla_${name} PRIVATE MLA_VERSION="${SKBUILD_PROJECT_VERSION_FULL}")
  target_link_libraries(mla_${name} PRIVATE mla_flags)
  # nodelete: threads and fork handlers of a payload outlive dlclose.
  target_link_options(mla_${name} PRIVATE -Wl,--no-undefined -Wl,-z,nodelete
                                          "-Wl,--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/payload.map")
  set(folder "${MLA_PAYLOAD_FOLDER}")
  install(TARGETS mla_${name} LIBRARY DESTINATION "${folder}")
  install(FILES "${MLA_GENERATED_DIR}/${name}/registry.json" DESTINATION "${folder}")
  # What test runs showed, where there is such a file; a core's sdist has none.
  install(FILES "${MLA_CSRC_DIR}/../../docs/evidence/${name}.json" DESTINATION "${folder}" RENAME evidence.json OPTIONAL)
  set(MLA_PAYLOAD_ARCH "${MLA_PAYLOAD_ARCH}" PARENT_SCOPE)
endfunction()
