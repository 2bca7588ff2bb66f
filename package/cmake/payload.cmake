# mla_payload(NAME SOURCES source... LIBRARIES target...): libmla_NAME.so from the given sources, the generated units
# and the common C ABI, installed with its registry, its manifest and an SBOM.
#
# The units are objects of a target of their own, mla_NAME_units. A shard builds some of them, those that MLA_UNITS
# names; MLA_OBJECTS is a folder of such objects that are linked instead of being compiled.
set(MLA_UNITS "" CACHE STRING "The units to compile, by their names without suffix; empty: all")
set(MLA_OBJECTS "" CACHE PATH "A folder that holds an object of every unit")
# Tests put a folder here whose headers stand in for those of csrc.
set(MLA_OVERRIDES "" CACHE STRING "A folder, as seen from package/, of headers that come before those of csrc")

function(mla_payload name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LIBRARIES")
  include("${MLA_GENERATED_DIR}/${name}/sources.cmake")
  set(units)
  foreach(path IN LISTS MLA_PAYLOAD_UNITS)
    get_filename_component(unit "${path}" NAME_WE)
    if(MLA_OBJECTS)
      list(APPEND units "${MLA_OBJECTS}/${unit}.o")
    elseif(NOT MLA_UNITS OR unit IN_LIST MLA_UNITS)
      list(APPEND units "${MLA_GENERATED_DIR}/${path}")
    endif()
  endforeach()
  if(NOT MLA_OBJECTS)
    add_library(mla_${name}_units OBJECT ${units})
    mla_state_paths(${units})
    mla_payload_target(mla_${name}_units ${arg_LIBRARIES})
    set(units $<TARGET_OBJECTS:mla_${name}_units>)
  endif()
  add_library(mla_${name} MODULE ${arg_SOURCES} "${MLA_GENERATED_DIR}/abi_layout.cpp"
                                 "${MLA_CSRC_DIR}/common/payload.cpp" "${MLA_CSRC_DIR}/common/status.cpp" ${units})
  mla_state_paths(${arg_SOURCES})
  mla_payload_target(mla_${name} ${arg_LIBRARIES})
  target_link_libraries(mla_${name} PRIVATE mla_glibc)
  target_compile_definitions(mla_${name} PRIVATE MLA_VERSION="${SKBUILD_PROJECT_VERSION_FULL}")
  # nodelete: threads and fork handlers of a payload outlive dlclose.
  target_link_options(mla_${name} PRIVATE -Wl,--no-undefined -Wl,-z,nodelete
                                          "-Wl,--version-script=${CMAKE_CURRENT_FUNCTION_LIST_DIR}/payload.map")
  mla_payload_install(${name} "${MLA_PAYLOAD_FOLDER}")
endfunction()

# nvcc names device symbols after a hash of their unit's path. It is told a path that is the same on every machine, so
# that a payload has the same bytes whatever folder it is built in.
function(mla_state_paths)
  file(REAL_PATH "${CMAKE_SOURCE_DIR}/.." root)
  foreach(source IN LISTS ARGN)
    if(source MATCHES "\\.cu$")
      file(REAL_PATH "${source}" path)
      file(RELATIVE_PATH path "${root}" "${path}")
      set(stated "/var/tmp/mla-kernels/source/${path}")
      set_property(SOURCE "${source}" APPEND PROPERTY COMPILE_OPTIONS "-Xcudafe=--orig_src_path_name=${stated}")
    endif()
  endforeach()
endfunction()

function(mla_payload_target target)
  set_target_properties(
    ${target} PROPERTIES PREFIX lib POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET
                         hidden VISIBILITY_INLINES_HIDDEN ON LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY None)
  target_link_libraries(${target} PRIVATE mla_flags ${ARGN})
  if(MLA_OVERRIDES)
    target_include_directories(${target} BEFORE PRIVATE "${CMAKE_SOURCE_DIR}/${MLA_OVERRIDES}")
  endif()
endfunction()

function(mla_payload_install name folder)
  install(TARGETS mla_${name} LIBRARY DESTINATION "${folder}")
  install(FILES "${MLA_GENERATED_DIR}/${name}/registry.json" DESTINATION "${folder}")
  # What test runs showed, where there is such a file; a core's sdist has none.
  install(FILES "${MLA_CSRC_DIR}/../../docs/evidence/${name}.json" DESTINATION "${folder}" RENAME evidence.json OPTIONAL)
  # Of the library as it is installed, stripped.
  set(describe "${Python_EXECUTABLE}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tools/manifest.py" "${name}"
               "\${CMAKE_INSTALL_PREFIX}/${folder}" "--generated=${MLA_GENERATED_DIR}"
               "--version=${SKBUILD_PROJECT_VERSION_FULL}" "--cxx=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
               "--cxx-flags=${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_RELEASE}")
  if(MLA_PAYLOAD_DEVICE STREQUAL "cuda")
    list(JOIN MLA_CUDA_OPTIONS " " cuda_flags)
    list(APPEND describe "--nvcc=${CMAKE_CUDA_COMPILER}" "--cuda-flags=${cuda_flags}")
  endif()
  if(MLA_OVERRIDES)
    list(APPEND describe "--overridden")
  endif()
  mla_install_code(${describe})
endfunction()

# mla_install_sbom(PART...): an SBOM in the wheel that names what others wrote and is linked in.
function(mla_install_sbom)
  if(SKBUILD_METADATA_DIR)
    list(JOIN ARGN "," linked)
    mla_install_code("${Python_EXECUTABLE}" "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../tools/sbom.py"
                     "${SKBUILD_PROJECT_NAME}" "${SKBUILD_PROJECT_VERSION_FULL}" "${SKBUILD_METADATA_DIR}/sboms"
                     "--linked=${linked}" "--compiler=${CMAKE_CXX_COMPILER_VERSION}")
  endif()
endfunction()

function(mla_install_code)
  list(JOIN ARGN "\" \"" command)
  install(CODE "execute_process(COMMAND \"${command}\" COMMAND_ERROR_IS_FATAL ANY)")
endfunction()
