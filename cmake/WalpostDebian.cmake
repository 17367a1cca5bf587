# The Debian package, by CPack: scripts/package sets WALPOST_DEBIAN and builds it. What any installation has is in src/CMakeLists.txt;
# here is what a package has beyond that.
set(WALPOST_PACKAGE_VERSION "${PROJECT_VERSION}" CACHE STRING "Version of the package: that of the project, or of a state before it")
set(WALPOST_PACKAGE_REVISION "1" CACHE STRING "Debian revision; names the Debian that it is built for, as 1.deb12")
set(WALPOST_PACKAGE_DATE "" CACHE STRING "Date of its changelog, as date -R prints it")
set(WALPOST_MAINTAINER "walpost maintainers <maintainers@walpost.invalid>" CACHE STRING "Name and address in the package")

set(packaging "${CMAKE_SOURCE_DIR}/packaging")
set(documents "share/doc/walpost")
configure_file("${packaging}/debian/changelog.in" "${CMAKE_BINARY_DIR}/debian/changelog.Debian" @ONLY)
configure_file("${CMAKE_SOURCE_DIR}/CHANGELOG.md" "${CMAKE_BINARY_DIR}/debian/changelog" COPYONLY)

install(FILES "${packaging}/walpost.yaml" DESTINATION /etc/walpost)
install(FILES "${packaging}/debian/default" DESTINATION /etc/default RENAME walpost)
install(FILES "${packaging}/debian/copyright" DESTINATION "${documents}")
install(FILES "${CMAKE_BINARY_DIR}/debian/changelog" "${CMAKE_BINARY_DIR}/debian/changelog.Debian" DESTINATION "${documents}")
# The runbook is needed when nothing else can be reached.
install(FILES "${CMAKE_SOURCE_DIR}/README.md" "${CMAKE_SOURCE_DIR}/SECURITY.md" DESTINATION "${documents}")
install(DIRECTORY "${CMAKE_SOURCE_DIR}/docs" DESTINATION "${documents}"
  FILES_MATCHING PATTERN "*.md" PATTERN "alerts.yml" PATTERN "grafana-dashboard.json"
  PATTERN examples EXCLUDE PATTERN kubernetes EXCLUDE)
install(DIRECTORY "${CMAKE_SOURCE_DIR}/sql" DESTINATION share/walpost)
# What Debian wants compressed and stripped (CPack's own strip leaves sections); runs after everything above.
install(CODE [[
  set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND gzip -9nf
    "${prefix}/share/man/man1/walpost.1" "${prefix}/share/man/man5/walpost.yaml.5"
    "${prefix}/share/doc/walpost/changelog" "${prefix}/share/doc/walpost/changelog.Debian")
  execute_process(COMMAND_ERROR_IS_FATAL ANY COMMAND
    strip --remove-section=.comment --remove-section=.note "${prefix}/bin/walpost")
]])

set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON) # for what goes to /etc
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_NAME walpost)
set(CPACK_PACKAGE_VERSION "${WALPOST_PACKAGE_VERSION}")
set(CPACK_PACKAGE_CONTACT "${WALPOST_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "sends a transactional outbox from PostgreSQL to Kafka")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "\
walpost reads what applications write into an outbox table inside their
own transactions from PostgreSQL's write-ahead log, through one logical
replication slot, and publishes it to Kafka: at least once, in the order
of commits for each key. The log position is confirmed only after Kafka
has acknowledged everything before it.
.
The service is not started by the installation: edit /etc/walpost/walpost.yaml,
run 'walpost init', then 'systemctl enable --now walpost'.")
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE "${WALPOST_PACKAGE_REVISION}")
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# For the user, for what the maintainer scripts call, and for the unit's ExecReload.
set(CPACK_DEBIAN_PACKAGE_DEPENDS
  "systemd | systemd-standalone-sysusers | systemd-sysusers, init-system-helpers (>= 1.54~), procps")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS postgresql)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  "${packaging}/debian/conffiles" "${packaging}/debian/postinst" "${packaging}/debian/prerm" "${packaging}/debian/postrm")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
