package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	if err := command().Execute(); err != nil {
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := options{}
	c := &cobra.Command{
		Use: "olm", Short: "Make OLM's bundle from config/, and a catalog that contains the bundle", Args: cobra.NoArgs,
		SilenceUsage: true,
		Long: `Make OLM's bundle from config/, and a catalog that contains the bundle.

<out>/bundle is a bundle of the format registry+v1. <out>/catalog is a file-based catalog with the bundle. Each
directory has the content of one image. --bundle names the image of the bundle. Name images by digest, because
mirrors of a cluster without internet access replace digests only.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := build(o); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%s/bundle\n%s/catalog\n", o.out, o.out)
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&o.root, "root", ".", "top `directory` of the source tree")
	f.StringVar(&o.version, "version", "0.1.0", "`version` of the operator")
	f.StringVar(&o.replaces, "replaces", "", "`version` that this version replaces; OLM removes the rights of that "+
		"version, and upgrades from it even if its major version is older")
	f.StringVar(&o.payload, "payload", "out/payload", "payload `directory` of that image, whose kubelets determine "+
		"the supported clusters")
	f.StringVar(&o.image, "image", "", "operator's `image`; if empty, the image in config/default")
	f.StringVar(&o.bundleImage, "bundle", "quay.io/windows-nodes/wmco-bundle:v0.1.0", "`image` of the bundle, for the catalog")
	f.StringVar(&o.out, "out", "out/olm", "`directory` to write to; its directories bundle and catalog are emptied "+
		"first")
	return c
}
