# `cmake --install`: library, headers, CMake package, pkg-config file, licence. Everything finds its
# neighbours relative to itself, so the tree may be moved. One prefix holds one kind of library.
include(CMakePackageConfigHelpers)

install(TARGETS rapt EXPORT rapt-targets)
if(TARGET rapt_tool)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(rapt_tool PROPERTIES INSTALL_RPATH $ORIGIN/${bin_to_lib})
  install(TARGETS rapt_tool OPTIONAL)
endif()
if(TARGET rapt_emulator_driver)
  install(TARGETS rapt_emulator_driver LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL)
endif()
if(RAPT_CUDA AND BUILD_SHARED_LIBS)  # where the target core_pack was built; as a folder, or it would be there without
  install(DIRECTORY $<TARGET_FILE_DIR:rapt>/rapt DESTINATION ${CMAKE_INSTALL_LIBDIR} OPTIONAL
    FILES_MATCHING PATTERN core.rpk)
endif()
install(DIRECTORY include/rapt DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h*")
install(FILES third_party/dlpack/dlpack.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/dlpack)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rapt)
configure_package_config_file(cmake/package/rapt-config.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/package/rapt-config.cmake INSTALL_DESTINATION ${package_dir})
# Until 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/package/rapt-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/rapt-config.cmake
  ${CMAKE_CURRENT_BINARY_DIR}/package/rapt-config-version.cmake DESTINATION ${package_dir})
install(EXPORT rapt-targets NAMESPACE rapt:: DESTINATION ${package_dir})

file(RELATIVE_PATH RAPT_PC_TO_PREFIX ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
file(RELATIVE_PATH RAPT_PC_LIBDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_LIBDIR})
file(RELATIVE_PATH RAPT_PC_INCLUDEDIR ${CMAKE_INSTALL_PREFIX} ${CMAKE_INSTALL_FULL_INCLUDEDIR})
set(RAPT_PC_LIBS_PRIVATE "-pthread -lstdc++ -lm")  # what a C program needs beside a static librapt
if(RAPT_CUDA)
  string(PREPEND RAPT_PC_LIBS_PRIVATE "-lzstd ")
endif()
set(RAPT_PC_CFLAGS)
set(RAPT_PC_LIBS)
if(NOT BUILD_SHARED_LIBS)
  set(RAPT_PC_CFLAGS " -DRAPT_STATIC")
  set(RAPT_PC_LIBS " -Wl,--exclude-libs,librapt.a")
endif()
configure_file(cmake/package/rapt.pc.in ${CMAKE_CURRENT_BINARY_DIR}/package/rapt.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/package/rapt.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
