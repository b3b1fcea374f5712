package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	top := &cobra.Command{
		Use: "image", Short: "Make, push and verify the project's container images, without a container engine",
		SilenceUsage: true,
	}
	top.AddCommand(buildCommand(), packCommand(), nameCommand(), pushCommand(), verifyCommand(),
		supplyCommand(), releaseCommand())
	return top
}

func buildCommand() *cobra.Command {
	o := buildOptions{}
	c := &cobra.Command{
		Use: "build", Short: "Build the images into an OCI layout", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return build(c.Context(), c.OutOrStdout(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", ".", "top `directory` of the source tree")
	f.StringVar(&o.payload, "payload", "out/payload", "`directory` of the payload, which make payload makes")
	f.StringVar(&o.out, "out", "out/image", "`directory` of the OCI layout to write")
	f.StringVar(&o.version, "version", "dev", "`version` of the operator")
	f.StringVar(&o.revision, "revision", "", "`commit` of the source, for a label")
	f.StringVar(&o.repository, "repository", "quay.io/windows-nodes/wmco",
		"`name` under which the operator's image is published, for its signature; the payload's name ends in "+
			"-payload, the name of wmco-e2e in -e2e")
	f.StringVar(&o.key, "key", "", "private key of PEM to sign with; "+passwordVariable+
		" holds its password, if any; without a key nothing is signed")
	f.BoolVar(&o.incomplete, "incomplete", false, "build although programs are missing that must be supplied")
	f.StringSliceVar(&o.platforms, "platforms", []string{"linux/amd64", "linux/arm64"}, "`platforms` of the operator")
	return c
}

func packCommand() *cobra.Command {
	o := packOptions{}
	c := &cobra.Command{
		Use: "pack bundle|catalog DIRECTORY", Short: "Make an image of OLM's bundle or catalog, and print its name",
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			o.name, o.directory = args[0], args[1]
			return pack(c.OutOrStdout(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.out, "out", "out/image", "`directory` of the OCI layout to write")
	f.StringVar(&o.version, "version", "dev", "`version` of the operator")
	f.StringVar(&o.revision, "revision", "", "`commit` of the source, for a label")
	f.StringVar(&o.repository, "repository", "quay.io/windows-nodes/wmco", "`name` under which the operator's image "+
		"is published; the names of the bundle and of the catalog end in -bundle and -catalog")
	f.StringVar(&o.key, "key", "", "private key of PEM to sign with; without it nothing is signed")
	return c
}

func nameCommand() *cobra.Command {
	var from, version, repository string
	c := &cobra.Command{
		Use: "name IMAGE", Short: "Print the name with digest of an image in a layout, such as operator",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			named, err := nameByDigest(from, args[0], version, repository)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), named)
			return err
		},
	}
	c.Flags().StringVar(&from, "from", "out/image", "`directory` of the OCI layout")
	c.Flags().StringVar(&version, "version", "dev", "`version` that it must have")
	c.Flags().StringVar(&repository, "repository", "quay.io/windows-nodes/wmco", "`name` of the operator's repository")
	return c
}

func pushCommand() *cobra.Command {
	var from, tag string
	c := &cobra.Command{
		Use: "push REPOSITORY", Short: "Push an OCI layout to REPOSITORY, REPOSITORY-payload and so on",
		Long: "Push an OCI layout: the operator's image to REPOSITORY, the others to REPOSITORY-payload, " +
			"REPOSITORY-e2e, REPOSITORY-bundle and REPOSITORY-catalog. It uses the credentials of docker login or " +
			"podman login.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return push(c.Context(), c.OutOrStdout(), from, args[0], tag,
				remote.WithAuthFromKeychain(authn.DefaultKeychain))
		},
	}
	c.Flags().StringVar(&from, "from", "out/image", "`directory` of the OCI layout")
	c.Flags().StringVar(&tag, "tag", "dev", "`tag` to push to")
	return c
}

func verifyCommand() *cobra.Command {
	var key string
	c := &cobra.Command{
		Use: "verify IMAGE", Short: "Check that an image in a registry is signed by a key", Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			image, err := name.ParseReference(args[0])
			if err != nil {
				return err
			}
			by, err := verifier(key)
			if err != nil {
				return err
			}
			if err := verify(c.Context(), image, by, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.OutOrStdout(), "%s is signed by %s\n", image, key)
			return err
		},
	}
	c.Flags().StringVar(&key, "key", "cosign.pub", "public key of PEM")
	return c
}

func releaseCommand() *cobra.Command {
	o := releaseOptions{}
	c := &cobra.Command{
		Use: "release", Short: "Collect everything that is published of a version in one directory", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return makeRelease(c.OutOrStdout(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.images, "images", "out/image",
		"`directory` of the layout with the images of operator, payload and wmco-e2e")
	f.StringVar(&o.bundle, "bundle", "out/olm/bundle-image", "`directory` of the layout with the bundle's image")
	f.StringVar(&o.catalog, "catalog", "out/olm/catalog-image", "`directory` of the layout with the catalog's image")
	f.StringVar(&o.chart, "chart", "", "`archive` of the chart")
	f.StringVar(&o.payload, "payload", "out/payload", "`directory` of the payload")
	f.StringVar(&o.plugin, "plugin", "out/plugin", "`directory` of the plugin of kubectl, which make plugin makes")
	f.StringArrayVar(&o.extra, "extra", nil, "another `file` to publish as it is")
	f.StringVar(&o.sonobuoy, "sonobuoy", "cmd/wmco-e2e/wmco-e2e.yaml",
		"`file` of the plugin for Sonobuoy; the command adds the digest to its image")
	f.StringVar(&o.repository, "repository", "quay.io/windows-nodes/wmco", "`name` of the operator's repository")
	f.StringVar(&o.changes, "changes", "", "`file` with a line for each change since the last release")
	f.StringVar(&o.notes, "notes", "", "`file` with a section for each version, docs/release-notes.md")
	f.StringVar(&o.source, "source", "https://github.com/windows-nodes/wmco", "`URL` of the project, for links in the notes")
	f.StringVar(&o.version, "version", "dev", "`version` of the release")
	f.StringVar(&o.out, "out", "out/release", "`directory` to write to, which is emptied first")
	return c
}

func supplyCommand() *cobra.Command {
	o, secret := supplyOptions{}, ""
	c := &cobra.Command{
		Use:   "supply PROGRAM",
		Short: "Take a program that can't be built out of the image that carries it",
		Long: "Take a program that can't be built out of the image that carries it, into a directory for SUPPLIED. " +
			"PROGRAM is its name in the payload, such as hybrid-overlay-node.exe. The image is named by its digest.",
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			o.program = args[0]
			var keys authn.Keychain = authn.DefaultKeychain
			if secret != "" {
				from, err := readPullSecret(secret)
				if err != nil {
					return err
				}
				keys = from
			}
			return supply(c.Context(), c.OutOrStdout(), o, remote.WithAuthFromKeychain(keys))
		},
	}
	f := c.Flags()
	f.StringVar(&o.image, "from", "", "`image` with its digest: registry/repository@sha256:…")
	f.StringVar(&o.path, "path", "", "`path` of the program in the image; in images for Windows it begins with Files/")
	f.StringVar(&o.platform, "platform", "linux/amd64", "`platform` of the image, where it has several")
	f.StringVar(&o.into, "into", "supplied", "`directory` to write to")
	f.StringVar(&o.version, "version", "", "`version` of the program, for people; the image's digest if empty")
	f.StringVar(&secret, "pull-secret", "",
		"`file` with the credentials, such as OpenShift's pull secret (default the credentials of docker login or "+
			"podman login)")
	for _, flag := range []string{"from", "path"} {
		if err := c.MarkFlagRequired(flag); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return c
}
