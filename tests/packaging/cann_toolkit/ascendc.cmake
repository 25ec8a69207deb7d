# SPDX-License-Identifier: Apache-2.0
#
# A stand-in for the build module of a CANN toolkit: the commands that csrc/ascend/CMakeLists.txt uses,
# over the emulator of tests/kernels/ascendc. The kernel sources are compiled unmodified; the launch
# statement, which only CANN's compiler knows, is that of tests/kernels/npu_runtime.

# The real module stops without them, too.
foreach(required SOC_VERSION RUN_MODE ASCEND_CANN_PACKAGE_PATH)
  if("${${required}}" STREQUAL "")
    message(FATAL_ERROR "${required} is not set")
  endif()
endforeach()

function(ascendc_library target type)
  set(here ${CMAKE_CURRENT_FUNCTION_LIST_DIR})
  add_library(${target} ${type} ${ARGN} ${here}/launch_emulated.cpp ${here}/launch_rows.cpp)
  target_include_directories(${target} PRIVATE ${here}/emulator ${CMAKE_SOURCE_DIR}/op_host)
  target_compile_definitions(${target} PRIVATE EAGLE3_QUAROT_HOST_EMULATION)
  # As in tests/kernels/npu_runtime/library.py: row_launch_npu.cpp has functions of these names.
  set_source_files_properties(${here}/launch_emulated.cpp PROPERTIES
    COMPILE_DEFINITIONS "EnqueueRows=RunEmulatedCores;VectorCores=EmulatedVectorCores")
endfunction()

function(ascendc_include_directories target)
  target_include_directories(${target} ${ARGN})
endfunction()

function(ascendc_compile_options target)
  target_compile_options(${target} ${ARGN})
endfunction()
