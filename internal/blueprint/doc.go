// Package blueprint answers WHAT must be on a node: it renders the services manifest (services,
// files, environment) as a pure function of facts about the cluster, the payload, and the settings
// of the administrator.
//
// The publisher calls Render; packages that read a cluster fill in Facts. The same input gives the
// same bytes, whatever the order of maps, so that a revision can be named by the digest of its
// content. It touches no client, no network and no clock. What is secret is in Confidential, and
// none of it in the manifest.
package blueprint
