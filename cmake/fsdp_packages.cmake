# Debian packages: fsdp-plan, the command with its models, and fsdp-plan-gui, the explorer, which needs the first.
#
#   cmake --build --preset release && cpack --config build/release/CPackConfig.cmake

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fsdp-plan)
set(CPACK_PACKAGE_VENDOR "The fsdp-plan authors")
# A package must name an address; "invalid" is reserved for what is none (RFC 2606). Whoever publishes packages sets his.
set(CPACK_PACKAGE_CONTACT "The fsdp-plan authors <authors@fsdp-plan.invalid>" CACHE STRING "Maintainer of the packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The stub GPU's own stand-in for the driver.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/lib/fsdp-plan/driver)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_COMPONENTS_GROUPING IGNORE)
# What is installed without a component is the command's.
set(CPACK_COMPONENTS_ALL Unspecified)
set(CPACK_DEBIAN_UNSPECIFIED_PACKAGE_NAME fsdp-plan)
if(gui IN_LIST FSDP_OPTIONAL_PARTS_BUILT)
  list(APPEND CPACK_COMPONENTS_ALL gui)
  set(CPACK_DEBIAN_GUI_PACKAGE_NAME fsdp-plan-gui)
  set(CPACK_DEBIAN_GUI_PACKAGE_DEPENDS "fsdp-plan (= ${PROJECT_VERSION})")
  set(CPACK_COMPONENT_GUI_DESCRIPTION
    "The what-if explorer of fsdp-plan: see what FSDP training of a model costs, and what a change would change")
endif()
include(CPack)
