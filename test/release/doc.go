// Package release tests a release. It pushes a release to a registry of the lab, with the command of
// .github/workflows/release.yml and under the release's real names. Then it installs the release on a real control
// plane with the commands of the README. `make test` tests a small release. `make test-release` tests the output of
// `make release`. It connects to no real registry.
package release
