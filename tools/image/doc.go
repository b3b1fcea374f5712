// Command image makes the container images of the project without a container engine: the
// operator's, the payload's and that of wmco-e2e, for linux/amd64 and linux/arm64. It is a program of the build, for
// people and CI, and is not shipped.
//
// An image is written as an OCI layout, and pushed from there. The same source gives the same
// digest again. Each image has a CycloneDX list of parts, and a signature when a key is given; both
// are attached as referrers, so that tools which mirror images take them along:
//
//	payload directory ─┐
//	go build ──────────┼─▶ layers ─▶ image ─▶ OCI layout ─▶ registry
//	                   └─▶ build information ─▶ list of parts ─┴─ referrers of the image
package main
